"""What a step costs, counted and not timed: operations that are started, and FLOPs of its products.

A clock on a shared machine says little; these numbers are the same everywhere. A change that adds a copy, a
pass over the activations or a wait for the device to every step shows here. Where a number falls, lower it.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from gptwright.arithmetic.flops import muon_flops
from gptwright.arithmetic.shape import ModelShape
from gptwright.config.load import load_config
from gptwright.config.schema import TrainConfig
from gptwright.model.cache import Beginnings, NextTokens
from gptwright.model.gpt import GPT
from gptwright.optim.optimizers import build_optimizer

# What only looks at a tensor in another way, or gives it a new name.
VIEWS = frozenset(
    (
        *("alias", "detach", "expand", "permute", "select", "slice", "split", "split_with_sizes"),
        *("squeeze", "t", "transpose", "unbind", "unsqueeze", "view", "_unsafe_view"),
    )
)
# What makes the processor wait for the device: a number, or a shape that depends on numbers.
WAITS = frozenset(("_local_scalar_dense", "nonzero", "equal", "item"))


class Counted(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts operations that do something, by name."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.by_name: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name.removeprefix("aten::")
        if name not in VIEWS:
            self.by_name[name] += 1
        return func(*args, **(kwargs or {}))

    @property
    def total(self) -> int:
        return self.by_name.total()


def counted(work: Callable[[], object]) -> Counted:
    seen = Counted()
    with seen:
        work()
    return seen


@dataclass(frozen=True)
class Step:
    """Operations of one training step, by its parts."""

    forward: Counted
    backward: Counted
    update: Counted


def config_of(**settings: object) -> TrainConfig:
    """A small model's."""
    small = {"n_head": 4, "n_embd": 64, "block_size": 64, "dropout": 0.0}
    return load_config([], {name: str(value) for name, value in (small | settings).items()}).config


def step_of(arch: str, n_layer: int, **settings: Any) -> Step:
    """The second step of a small model, when the optimizer has its moments."""
    config = config_of(arch=arch, n_layer=n_layer, **settings)
    model = GPT(ModelShape.of(config, 65))
    optimizer = build_optimizer(model, config, fused=True)
    tokens = torch.zeros((12, 64), dtype=torch.int64)
    losses: list[Tensor] = []

    def update() -> None:
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    model(tokens, tokens).backward()
    update()
    return Step(
        forward=counted(lambda: losses.append(model(tokens, tokens))),
        backward=counted(losses[0].backward),
        update=counted(update),
    )


@pytest.mark.parametrize(
    ("arch", "layer", "outside"),
    [("gpt2", (10, 15), (9, 11)), ("modern", (30, 31), (21, 21))],
)
def test_a_layer_starts_so_many_operations_and_no_more(
    arch: str, layer: tuple[int, int], outside: tuple[int, int]
) -> None:
    """GPT-2's forward pass: two norms, four products, attention, GELU and two additions."""
    two, three = step_of(arch, 2), step_of(arch, 3)
    forward, backward = (
        getattr(three, part).total - getattr(two, part).total for part in ("forward", "backward")
    )
    assert forward <= layer[0]
    assert backward <= layer[1]
    assert two.forward.total - 2 * forward <= outside[0]
    assert two.backward.total - 2 * backward <= outside[1]


@pytest.mark.parametrize("arch", ["gpt2", "modern"])
@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_nothing_in_a_step_waits_for_the_device(arch: str, optimizer: str) -> None:
    step = step_of(arch, 2, optimizer=optimizer)
    for part in (step.forward, step.backward, step.update):
        assert not WAITS & set(part.by_name)


def test_adamw_is_one_operation_for_each_group() -> None:
    assert step_of("gpt2", 3).update.by_name == {"_foreach_add_": 2, "_fused_adamw_": 2}


@pytest.mark.parametrize("steps", [3, 5])
def test_muons_products_are_batched_over_equal_shapes(steps: int) -> None:
    """Matrices of two shapes, however deep the model: a Gram matrix, its square and a product a step each."""
    for n_layer in (2, 5):
        made = step_of("modern", n_layer, optimizer="muon", muon_steps=steps).update.by_name
        assert made["bmm"] == 2 * steps
        assert made["baddbmm"] == 2 * 2 * steps


@pytest.mark.parametrize("arch", ["gpt2", "modern"])
@pytest.mark.parametrize("again", [False, True])
def test_products_are_those_that_are_counted(arch: str, *, again: bool) -> None:
    shape = ModelShape.of(config_of(arch=arch, n_layer=3, gradient_checkpointing=again), 65)
    model, tokens = GPT(shape), torch.zeros((2, 64), dtype=torch.int64)
    with FlopCounterMode(display=False) as counter:
        model(tokens, tokens).backward()
    # Of a block's twelve n_embd², the four of the last product need not be made again.
    recomputed = 8 * shape.n_layer * shape.n_embd**2 if again else 0
    per_token = 6 * shape.count_parameters().matmul + 2 * recomputed
    assert product_flops(counter) == tokens.numel() * per_token


def test_muons_flops_are_those_that_are_counted() -> None:
    config = config_of(arch="modern", optimizer="muon", n_layer=3)
    model = GPT(ModelShape.of(config, 65))
    optimizer = build_optimizer(model, config, fused=True)
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    with FlopCounterMode(display=False) as counter:
        optimizer.step()
    assert counter.get_total_flops() == muon_flops(n_layer=3, n_embd=64, steps=config.muon_steps)


@pytest.mark.parametrize(("arch", "operations"), [("gpt2", 15), ("modern", 39)])
def test_a_token_behind_a_cached_text_costs_one_row_of_products(arch: str, operations: int) -> None:
    shallow, deep, longer = token_of(arch, 2, 8), token_of(arch, 3, 8), token_of(arch, 2, 40)
    assert deep.total - shallow.total <= operations
    assert longer.by_name == shallow.by_name


def token_of(arch: str, n_layer: int, context: int) -> Counted:
    """Operations of one more token behind `context` others; fails if its products are more than its own."""
    model = GPT(ModelShape.of(config_of(arch=arch, n_layer=n_layer), 65)).eval()
    cache, seen = model.new_cache(1), Counted()
    tokens = torch.zeros((1, context + 1), dtype=torch.int64)
    with torch.inference_mode():
        model.hidden(tokens[:, :context], Beginnings(cache, [0], [context]))
        with FlopCounterMode(display=False) as counter, seen:
            model.next_logits(tokens[:, context:], NextTokens(cache, 1))
    assert product_flops(counter) <= 2 * model.shape.count_parameters().matmul
    return seen


def product_flops(counter: FlopCounterMode) -> int:
    """FLOPs of matrix products, attention left out."""
    counts = counter.get_flop_counts()["Global"]
    return sum(flops for name, flops in counts.items() if str(name) in ("aten.mm", "aten.addmm", "aten.bmm"))

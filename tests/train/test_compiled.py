"""What a compiled run has torch compile, counted: on a GPU each graph takes the better part of a minute.

Graphs are captured and differentiated as everywhere, and run with eager kernels; whether an operation is
captured does not depend on the device.
"""

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo
from torch import Tensor
from torch._dynamo.backends.debugging import aot_eager
from torch._dynamo.utils import counters

from gptwright.arithmetic.shape import ModelShape
from gptwright.config.load import load_config
from gptwright.hardware.detect import find_device
from gptwright.model.gpt import GPT
from gptwright.train import fitting, precision
from gptwright.train.replica import build_replica
from gptwright.train.run import prepare_new, train_prepared
from gptwright.train.world import World
from tests.train.conftest import Watcher
from tests.train.test_memory import guards, numbers

Sizes = list[tuple[bool, tuple[int, ...]]]


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Sizes]:
    """Of each graph that is compiled: whether it is one of training, and the batches among its inputs."""
    seen: Sizes = []

    def compiled(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        shapes = [given.shape for given in inputs if isinstance(given, Tensor) and given.dtype == torch.int64]
        seen.append((torch.is_grad_enabled(), tuple(shapes[0]) if shapes else ()))
        made: Callable[..., Any] = aot_eager(graph, inputs)
        return made

    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend=compiled))
    monkeypatch.setattr(precision, "try_compiler", lambda: (True, "compiled"))
    # A step and an evaluation are tried before the first, as on a GPU.
    monkeypatch.setattr(fitting, "has_address_limit", lambda: True)
    torch._dynamo.reset()
    counters.clear()
    yield seen
    torch._dynamo.reset()


@pytest.mark.parametrize(
    "settings",
    [
        {"dropout": "0.1"},
        {"arch": "modern", "optimizer": "muon", "gradient_checkpointing": "True"},
    ],
)
def test_a_run_compiles_its_step_once_and_its_evaluation_once(
    tmp_path: Path, tiny: dict[str, str], graphs: Sizes, settings: dict[str, str]
) -> None:
    options = tiny | settings | {"compile": "True", "eval_batch_size": "3", "max_iters": "10"}
    prepared = prepare_new(load_config([], options | {"out_dir": str(tmp_path / "run")}))
    assert prepared.session.compiled
    train_prepared(prepared, Watcher())
    assert graphs == [(True, (4, 16)), (False, (3, 16))]
    assert not counters["graph_break"]
    assert numbers(tmp_path / "run", "eval", "val_windows").min() % 3 == 2


def test_a_step_that_is_cut_finer_is_compiled_for_its_own_size(
    tmp_path: Path, tiny: dict[str, str], graphs: Sizes
) -> None:
    """And not for any size, as a second one would be otherwise."""
    options = tiny | {"compile": "True", "batch_size": "8", "gradient_accumulation_steps": "1"}
    prepared = prepare_new(load_config([], options | {"max_iters": "3", "out_dir": str(tmp_path / "run")}))
    forward = prepared.session.forward

    def on_a_small_card(tokens_BT: Tensor, targets_BT: Tensor, *, per_window: bool = False) -> Tensor:
        loss = forward(tokens_BT, targets_BT, per_window=per_window)
        if len(tokens_BT) > 2 and torch.is_grad_enabled():
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 6.14 GiB.")
        return loss

    object.__setattr__(prepared.session.replica, "forward", on_a_small_card)
    train_prepared(prepared, Watcher())
    assert graphs == [*[(True, (size, 16)) for size in (8, 4, 2)], (False, (2, 16))]
    assert [told["batch_size"] for told in guards(tmp_path / "run")] == [4, 2]


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(("parallel", "n_layer"), [("ddp", 1), ("fsdp", 10)])
@pytest.mark.parametrize("arch", ["gpt2", "modern"])
def test_compiled_copies_and_parts_have_the_gradients_of_the_model(
    graphs: Sizes, arch: str, parallel: str, n_layer: int
) -> None:
    """Blocks that are compiled one by one share a graph: torch makes no more than eight of one function."""
    settings = {"n_layer": n_layer, "n_head": 2, "n_embd": 16, "block_size": 16, "arch": arch}
    settings |= {"gradient_checkpointing": parallel == "ddp", "kernels": False}
    shape = ModelShape.of(load_config([], {k: str(v) for k, v in settings.items()}).config, 64)
    tokens_BT = torch.randint(64, (4, 17))[:, :16].clone()
    models = []
    for how in ("none", parallel):
        torch.manual_seed(1)
        models.append(GPT(shape))
        replica = build_replica(
            models[-1], parallel=how, compiled=how != "none", device=find_device("cpu"), world=World()
        )
        for last in (False, True):
            replica.average_next(last)
            replica.forward(tokens_BT, tokens_BT.flip(0)).backward()  # type: ignore[no-untyped-call]
    wanted, found = (
        {name: getattr(p.grad, "full_tensor", lambda p=p: p.grad)() for name, p in model.named_parameters()}
        for model in models
    )
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)
    assert not counters["graph_break"]
    assert len(graphs) <= 2

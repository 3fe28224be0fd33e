"""The GPT against an independent reference, and the properties that training relies on."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gptwright.arithmetic.shape import ModelShape
from gptwright.config.ingredients import GPT2, MODERN, Ingredients
from gptwright.config.schema import TrainConfig
from gptwright.model.attention import CausalSelfAttention
from gptwright.model.cache import NextTokens
from gptwright.model.gpt import GPT
from tests.model.models import random_ids, shape_of, vivid_model
from tests.model.reference import Reference

# One layer with biases: nanoGPT's names in nanoGPT's order, which is what lets its checkpoints load.
NANOGPT_NAMES = [
    "transformer.wte.weight",
    "transformer.wpe.weight",
    "transformer.h.0.ln_1.weight",
    "transformer.h.0.ln_1.bias",
    "transformer.h.0.attn.c_attn.weight",
    "transformer.h.0.attn.c_attn.bias",
    "transformer.h.0.attn.c_proj.weight",
    "transformer.h.0.attn.c_proj.bias",
    "transformer.h.0.ln_2.weight",
    "transformer.h.0.ln_2.bias",
    "transformer.h.0.mlp.c_fc.weight",
    "transformer.h.0.mlp.c_fc.bias",
    "transformer.h.0.mlp.c_proj.weight",
    "transformer.h.0.mlp.c_proj.bias",
    "transformer.ln_f.weight",
    "transformer.ln_f.bias",
]
# (n_layer, n_head, n_embd, block_size, batch, tokens); the last is at most the block and often below it.
SIZES = [(1, 1, 8, 8, 1, 1), (2, 2, 16, 16, 3, 9), (3, 3, 24, 32, 2, 32), (2, 4, 32, 64, 2, 21)]


# Worst relative error allowed. float32 rounds at 6e-8 and a gradient passes some fifty roundings, sums of up
# to a hundred terms among them: 5e-6 was the worst seen. In float64 it was 5e-15.
TOLERANCE = {torch.float32: 3e-5, torch.float64: 1e-12}


def relative_errors(model: GPT, tokens_BT: torch.Tensor, targets_BT: torch.Tensor) -> dict[str, float]:
    """The model against the reference: `loss`, and by parameter the largest error over the largest entry."""
    model.zero_grad()
    loss = model(tokens_BT, targets_BT)
    loss.backward()
    weights = {name: p.detach().double().numpy() for name, p in model.named_parameters()}
    reference = Reference(weights, n_head=model.shape.n_head)
    expected = reference.loss(tokens_BT.numpy(), targets_BT.numpy())
    errors = {"loss": abs(loss.item() - expected) / expected}
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        wanted = reference.gradients[name]
        scale = float(np.abs(wanted).max())
        assert scale > 1e-4, f"{name} has no gradient to compare"
        errors[name] = float(np.abs(parameter.grad.double().numpy() - wanted).max()) / scale
    return errors


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("tied", [True, False])
def test_loss_and_gradients_are_the_references(
    *, size: tuple[int, int, int, int, int, int], bias: bool, tied: bool
) -> None:
    n_layer, n_head, n_embd, block_size, batch, tokens = size
    shape = shape_of(
        n_layer=n_layer, n_head=n_head, n_embd=n_embd, block_size=block_size, bias=bias, tie_weights=tied
    )
    model = vivid_model(shape, seed=n_head)
    tokens_BT = random_ids((batch, tokens), shape.vocab_size, seed=1)
    targets_BT = random_ids((batch, tokens), shape.vocab_size, seed=2)
    for dtype, tolerance in TOLERANCE.items():
        errors = relative_errors(model.to(dtype), tokens_BT, targets_BT)
        worst = max(errors, key=errors.__getitem__)
        assert errors[worst] < tolerance, f"{worst} is off by {errors[worst]:.1e} in {dtype}"


def test_no_token_sees_what_comes_after_it() -> None:
    model = vivid_model(shape_of())
    tokens_BT = random_ids((1, 12), 23)
    changed_BT = tokens_BT.clone()
    changed_BT[0, 7] = (changed_BT[0, 7] + 1) % 23
    with torch.no_grad():
        difference_T = (model.hidden(tokens_BT) - model.hidden(changed_BT)).abs().amax(dim=(0, 2))
    assert difference_T[:7].max() == 0
    assert difference_T[7:].min() > 1e-3


def test_parameters_have_nanogpts_names() -> None:
    tied = GPT(shape_of(n_layer=1))
    assert [name for name, _ in tied.named_parameters()] == NANOGPT_NAMES
    assert list(tied.state_dict()) == [*NANOGPT_NAMES, "lm_head.weight"]
    untied = GPT(shape_of(n_layer=1, bias=False, tie_weights=False))
    without_bias = [name for name in NANOGPT_NAMES if not name.endswith("bias")]
    assert [name for name, _ in untied.named_parameters()] == [*without_bias, "lm_head.weight"]


def test_a_tied_weight_is_one_parameter_and_gets_both_gradients() -> None:
    tied = vivid_model(shape_of())
    untied = vivid_model(shape_of(tie_weights=False))
    untied.load_state_dict(tied.state_dict())
    tokens_BT, targets_BT = random_ids((2, 9), 23, seed=1), random_ids((2, 9), 23, seed=2)
    tied(tokens_BT, targets_BT).backward()
    untied(tokens_BT, targets_BT).backward()
    assert tied.get_parameter("transformer.wte.weight") is tied.get_parameter("lm_head.weight")
    assert len(list(untied.parameters())) == len(list(tied.parameters())) + 1
    both = [untied.get_parameter(name).grad for name in ("transformer.wte.weight", "lm_head.weight")]
    assert both[0] is not None
    assert both[1] is not None
    torch.testing.assert_close(tied.get_parameter("lm_head.weight").grad, both[0] + both[1])


@pytest.mark.parametrize("n_layer", [1, 8])
def test_initialization_is_gpt2s(n_layer: int) -> None:
    torch.manual_seed(5)
    model = GPT(shape_of(n_layer=n_layer, n_embd=64, block_size=64, vocab_size=500, tie_weights=False))
    for name, parameter in model.named_parameters():
        if ".ln_" in name and name.endswith("weight"):
            assert parameter.eq(1).all(), name
        elif name.endswith("bias"):
            assert parameter.eq(0).all(), name
        else:
            wanted = 0.02 / math.sqrt(2 * n_layer) if name.endswith("c_proj.weight") else 0.02
            count = parameter.numel()
            # 5 standard errors: of a standard deviation from `count` samples, then of their mean.
            assert parameter.std().item() == pytest.approx(wanted, rel=5 / math.sqrt(2 * count)), name
            assert abs(parameter.mean().item()) < 5 * wanted / math.sqrt(count), name


def test_the_same_seed_gives_the_same_weights() -> None:
    def weights(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        return torch.cat([p.detach().flatten() for p in GPT(shape_of()).parameters()])

    assert torch.equal(weights(1), weights(1))
    assert not torch.equal(weights(1), weights(2))


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("vocab_size", [65, 5000])
def test_the_loss_at_initialization_is_that_of_guessing(vocab_size: int, *, tied: bool) -> None:
    torch.manual_seed(3)
    model = GPT(shape_of(n_embd=64, block_size=64, vocab_size=vocab_size, tie_weights=tied))
    ids = random_ids((2, 8, 64), vocab_size)
    loss = model(ids[0], ids[1]).item()
    # Logits are normal with deviation 0.02·√64, which costs half its square in nats over ln V; sampling
    # 512 targets adds 0.16/√512 of noise, of which four deviations are allowed.
    assert loss == pytest.approx(math.log(vocab_size) + 0.16**2 / 2, abs=4 * 0.16 / math.sqrt(512))


def test_per_window_losses_are_each_windows_own() -> None:
    model = vivid_model(shape_of())
    tokens_BT, targets_BT = random_ids((5, 11), 23, seed=1), random_ids((5, 11), 23, seed=2)
    losses_B = model(tokens_BT, targets_BT, per_window=True)
    alone_B = torch.stack([model(tokens_BT[b : b + 1], targets_BT[b : b + 1]) for b in range(5)])
    torch.testing.assert_close(losses_B, alone_B)
    torch.testing.assert_close(losses_B.mean(), model(tokens_BT, targets_BT))
    assert losses_B.std() > 0.01


def test_the_loss_is_minus_the_log_probability_that_next_logits_gives() -> None:
    model = vivid_model(shape_of()).eval()
    text = random_ids((10,), 23)
    cache = model.new_cache()
    with torch.no_grad():
        loss = model(text[None, :-1], text[None, 1:]).item()
        plain = [model.next_logits(text[None, :end])[0] for end in range(1, 10)]
        cached = [
            model.next_logits(text[None, end - 1 : end], NextTokens(cache, 1))[0] for end in range(1, 10)
        ]
    for logits in (plain, cached):
        steps = [row.log_softmax(dim=0)[text[at]].item() for at, row in enumerate(logits, start=1)]
        assert loss == pytest.approx(-sum(steps) / len(steps), rel=1e-5)


def losses_under_dropout(model: GPT, seeds: range) -> list[float]:
    tokens_BT, targets_BT = random_ids((2, 9), 23, seed=1), random_ids((2, 9), 23, seed=2)
    losses = []
    for seed in seeds:
        torch.manual_seed(seed)
        losses.append(model(tokens_BT, targets_BT).item())
    return losses


def test_dropout_acts_in_training_alone() -> None:
    model = vivid_model(shape_of(dropout=0.3))
    dropless = vivid_model(shape_of())
    assert set(losses_under_dropout(model.eval(), range(4))) == set(losses_under_dropout(dropless, range(1)))
    assert len(set(losses_under_dropout(model.train(), range(4)))) == 4


# Two blocks have six places: after the embedding, on the attention weights, and at the end of both branches.
@pytest.mark.parametrize("place", ["drop", "attn", "attn.resid_dropout", "mlp.dropout"])
def test_each_place_of_dropout_acts(place: str) -> None:
    model = vivid_model(shape_of(dropout=0.0)).train()
    still = losses_under_dropout(model, range(2))
    assert still[0] == still[1]
    owner = model.get_submodule(f"transformer.{'' if place == 'drop' else 'h.1.'}{place}")
    assert isinstance(owner, nn.Dropout) == (place != "attn")
    setattr(owner, "dropout" if place == "attn" else "p", 0.5)
    moved = losses_under_dropout(model, range(2))
    assert len({still[0], *moved}) == 3


def test_the_shapes_dropout_reaches_each_place() -> None:
    model = GPT(shape_of(n_layer=3, dropout=0.25))
    rates = [module.p for module in model.modules() if isinstance(module, nn.Dropout)]
    rates += [module.dropout for module in model.modules() if isinstance(module, CausalSelfAttention)]
    assert rates == [0.25] * (1 + 3 * 3)


def test_the_shape_comes_from_the_config() -> None:
    config = TrainConfig(
        n_layer=3, n_head=5, n_embd=40, block_size=7, dropout=0.25, bias=True, tie_weights=False
    )
    assert ModelShape.of(config, 11) == ModelShape(
        n_layer=3,
        n_head=5,
        n_embd=40,
        block_size=7,
        vocab_size=11,
        bias=True,
        tie_weights=False,
        dropout=0.25,
    )


@pytest.mark.parametrize("ingredients", [GPT2, MODERN])
@pytest.mark.parametrize("float32", [False, True])
def test_attention_alone_can_stay_in_float32(
    ingredients: Ingredients, float32: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[torch.dtype] = []
    real = F.scaled_dot_product_attention

    def seen(q: Tensor, k: Tensor, v: Tensor, **others: Any) -> Tensor:
        y = real(q, k, v, **others)
        given.extend([q.dtype, k.dtype, v.dtype, y.dtype])
        return y

    monkeypatch.setattr(F, "scaled_dot_product_attention", seen)
    model = vivid_model(shape_of(ingredients=ingredients, float32_attention=float32))
    tokens = random_ids((2, 16), 23)
    plain = model(tokens, tokens)
    given.clear()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model(tokens, tokens)
    loss.backward()
    kinds = set(given) if float32 else {given[3]}  # autocast lowers what attention was given inside it
    assert kinds == {torch.float32 if float32 else torch.bfloat16}
    assert loss.item() == pytest.approx(plain.item(), rel=0.02)
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in model.parameters())

"""Blocks and loss as one operation each give what torch gives, as exactly as autocast does or float32."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from gptwright.arithmetic.shape import ModelShape
from gptwright.config.ingredients import GPT2, MODERN, Ingredients
from gptwright.kernels.library import Missing, load_kernels
from gptwright.model.fused.recipe import Drops, Recipe
from gptwright.model.gpt import GPT
from tests.model.models import random_ids, shape_of, vivid_model

pytestmark = pytest.mark.skipif(isinstance(load_kernels(torch.float32), Missing), reason="no gcc")
in_both = pytest.mark.parametrize("narrow", [True, False], ids=["bfloat16", "float32"])

NO_QK_NORM = replace(MODERN, qk_norm=False)
NO_ROPE = replace(MODERN, rope=False)
SHAPES = {
    "gpt2": shape_of(bias=False),
    "gpt2 with biases": shape_of(bias=True),
    "untied": shape_of(bias=True, tie_weights=False),
    "odd": shape_of(n_head=3, n_embd=21, block_size=13, bias=True),
    "modern": shape_of(bias=False, tie_weights=False, ingredients=MODERN),
    "modern without a norm of queries": shape_of(bias=False, ingredients=NO_QK_NORM),
    "modern without turns": shape_of(bias=False, ingredients=NO_ROPE),
    "a chunked loss": shape_of(loss_chunk=8),
    "several blocks of queries": shape_of(bias=False, block_size=150),
}


def trained_once(model: GPT, *, narrow: bool, tokens_BT: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss and every gradient."""
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=narrow):
        loss = model(tokens_BT, tokens_BT.roll(-1, 1))
    loss.backward()
    return loss.detach(), {n: p.grad for n, p in model.named_parameters() if p.grad is not None}


def distance(gradients: dict[str, Tensor], exact: dict[str, Tensor]) -> dict[str, float]:
    """How far each is off, over its own length."""
    return {name: float((gradients[name] - g).norm() / g.norm()) for name, g in exact.items()}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_loss_and_gradients_are_as_exact_as_autocasts(shape: ModelShape) -> None:
    tokens_BT = random_ids((3, shape.block_size), shape.vocab_size)
    fused_shape = replace(shape, kernels=True)
    exact_loss, exact = trained_once(vivid_model(shape), narrow=False, tokens_BT=tokens_BT)
    torchs_loss, torchs = trained_once(vivid_model(shape), narrow=True, tokens_BT=tokens_BT)
    our_loss, ours = trained_once(vivid_model(fused_shape), narrow=True, tokens_BT=tokens_BT)
    assert ours.keys() == exact.keys()
    assert all(gradient.dtype == torch.float32 for gradient in ours.values())
    assert float(our_loss) == pytest.approx(float(exact_loss), rel=5e-3)
    off, as_far = distance(ours, exact), distance(torchs, exact)
    assert {name: d for name, d in off.items() if d > 1.5 * as_far[name] + 0.01} == {}
    assert math.isfinite(float(torchs_loss))


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_in_float32_they_are_torchs(shape: ModelShape) -> None:
    tokens_BT = random_ids((3, shape.block_size), shape.vocab_size)
    exact_loss, exact = trained_once(vivid_model(shape), narrow=False, tokens_BT=tokens_BT)
    fused = vivid_model(replace(shape, kernels=True))
    our_loss, ours = trained_once(fused, narrow=False, tokens_BT=tokens_BT)
    assert float(our_loss) == pytest.approx(float(exact_loss), rel=1e-6)
    assert ours.keys() == exact.keys()
    assert max(distance(ours, exact).values()) < 1e-5


@pytest.mark.parametrize("ingredients", [GPT2, MODERN], ids=["gpt2", "modern"])
def test_nothing_but_narrow_numbers_makes_the_difference(ingredients: Ingredients) -> None:
    """A slip in a formula would leave a gradient further off than eight bits of a number do."""
    shape = shape_of(bias=False, ingredients=ingredients, block_size=40)
    tokens_BT = random_ids((2, 40), shape.vocab_size)
    _, exact = trained_once(vivid_model(shape), narrow=False, tokens_BT=tokens_BT)
    _, ours = trained_once(vivid_model(replace(shape, kernels=True)), narrow=True, tokens_BT=tokens_BT)
    assert max(distance(ours, exact).values()) < 0.03


@in_both
def test_a_second_passes_bits_are_the_first_ones(narrow: bool) -> None:
    shape = shape_of(kernels=True, ingredients=MODERN, block_size=40)
    tokens_BT = random_ids((4, 40), shape.vocab_size)
    first, second = (trained_once(vivid_model(shape), narrow=narrow, tokens_BT=tokens_BT) for _ in range(2))
    assert torch.equal(first[0], second[0])
    assert all(torch.equal(first[1][name], second[1][name]) for name in first[1])


@in_both
@pytest.mark.parametrize("ingredients", [GPT2, MODERN], ids=["gpt2", "modern"])
def test_blocks_that_are_computed_again_give_the_same_bits(ingredients: Ingredients, narrow: bool) -> None:
    shape = shape_of(kernels=True, ingredients=ingredients)
    tokens_BT = random_ids((3, 16), shape.vocab_size)
    _, kept = trained_once(vivid_model(shape), narrow=narrow, tokens_BT=tokens_BT)
    checkpointed = vivid_model(replace(shape, gradient_checkpointing=True))
    _, again = trained_once(checkpointed, narrow=narrow, tokens_BT=tokens_BT)
    assert all(torch.equal(kept[name], again[name]) for name in kept)


@in_both
def test_gradients_of_two_micro_batches_add_up(narrow: bool) -> None:
    model = vivid_model(shape_of(kernels=True))
    tokens_BT = random_ids((4, 16), 23)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=narrow):
        for half in (tokens_BT[:2], tokens_BT[2:]):
            (model(half, half.roll(-1, 1)) / 2).backward()
    _, whole = trained_once(vivid_model(shape_of(kernels=True)), narrow=narrow, tokens_BT=tokens_BT)
    halves = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    assert max(distance(halves, whole).values()) < (0.01 if narrow else 1e-5)


@in_both
@pytest.mark.parametrize("shape", [SHAPES["gpt2"], SHAPES["modern"]], ids=["gpt2", "modern"])
def test_an_evaluation_gives_each_windows_loss(shape: ModelShape, narrow: bool) -> None:
    tokens_BT = random_ids((3, 16), shape.vocab_size)
    model = vivid_model(replace(shape, kernels=True))
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=narrow):
        training = model(tokens_BT, tokens_BT.roll(-1, 1)).detach()
        with torch.no_grad():
            evaluated = model.eval()(tokens_BT, tokens_BT.roll(-1, 1), per_window=True)
            mean = model(tokens_BT, tokens_BT.roll(-1, 1))
    assert evaluated.shape == (3,)
    assert float(evaluated.mean()) == pytest.approx(float(training), rel=1e-6)
    assert float(mean) == pytest.approx(float(training), rel=1e-6)
    exact = vivid_model(shape).eval()(tokens_BT, tokens_BT.roll(-1, 1), per_window=True)
    off = 1e-2 if narrow else 1e-5
    torch.testing.assert_close(evaluated, exact, rtol=off, atol=off)


def test_other_dtypes_are_torchs() -> None:
    """In float16 and float64 the model is what it is without kernels, to the bit."""
    tokens_BT = random_ids((2, 16), 23)
    models = [vivid_model(shape_of(kernels=kernels)) for kernels in (True, False)]
    with torch.autocast("cpu", dtype=torch.float16):
        assert torch.equal(*[model(tokens_BT, tokens_BT) for model in models])
    assert torch.equal(*[model.double()(tokens_BT, tokens_BT) for model in models])


@in_both
def test_nan_and_infinity_reach_the_loss_and_the_gradients(narrow: bool) -> None:
    """A run is judged by them."""
    for poison in (math.nan, math.inf):
        model = vivid_model(shape_of(kernels=True))
        with torch.no_grad():
            model.transformer["h"][0].mlp.c_fc.weight[3, 2] = poison  # type: ignore[index]
        tokens_BT = random_ids((2, 16), 23)
        loss, gradients = trained_once(model, narrow=narrow, tokens_BT=tokens_BT)
        assert not loss.isfinite()
        assert not gradients["transformer.h.1.attn.c_attn.weight"].isfinite().all()


def counted_drops(monkeypatch: pytest.MonkeyPatch) -> list[Drops]:
    """Every draw that a pass makes, in order, with seeds 0, 1, 2 and so on."""
    made: list[Drops] = []

    def drops(recipe: Recipe) -> Drops | None:
        made.append(Drops(recipe.kernels, len(made), recipe.dropout))
        return made[-1]

    monkeypatch.setattr(Recipe, "drops", drops)
    return made


class Masked(torch.nn.Module):
    """Multiplies by a mask that is given."""

    def __init__(self, mask: Tensor) -> None:
        super().__init__()
        self.mask = mask

    def forward(self, x: Tensor) -> Tensor:
        return x * self.mask


@in_both
def test_dropout_drops_forwards_and_backwards_what_it_drew(
    monkeypatch: pytest.MonkeyPatch, narrow: bool
) -> None:
    """Against the same model in float32 with the same masks, attention written out."""
    made = counted_drops(monkeypatch)
    B, T, H, C = 3, 13, 2, 16
    shape = shape_of(n_layer=1, n_head=H, n_embd=C, block_size=T, dropout=0.25)
    tokens_BT = random_ids((B, T), shape.vocab_size)
    _, ours = trained_once(vivid_model(replace(shape, kernels=True)), narrow=narrow, tokens_BT=tokens_BT)
    at_start, in_attention, after_attention, after_mlp = made
    dtype = torch.bfloat16 if narrow else torch.float32
    mask_NTT = in_attention(torch.ones(B * H, T, T, dtype=dtype)).float()

    model = vivid_model(shape)
    (block,) = model.transformer["h"].children()
    branch = torch.ones(B, T, C, dtype=dtype)
    model.transformer["drop"] = Masked(at_start(torch.ones(B, T, C)))
    attention, mlp = block.get_submodule("attn"), block.get_submodule("mlp")
    attention.resid_dropout = Masked(after_attention(branch.clone()).float())
    mlp.dropout = Masked(after_mlp(branch.clone()).float())

    def attend(q_BHTD: Tensor, k_BHTD: Tensor, v_BHTD: Tensor, cached: None) -> Tensor:
        assert cached is None
        scores = q_BHTD @ k_BHTD.mT / math.sqrt(C // H)
        p = scores.masked_fill(torch.ones(T, T).triu_(1).bool(), -math.inf).softmax(dim=-1)
        return p * mask_NTT.view(B, H, T, T) @ v_BHTD

    monkeypatch.setattr(attention, "_attend", attend)
    _, exact = trained_once(model, narrow=False, tokens_BT=tokens_BT)
    # A single element that was dropped on one way alone would be far more.
    assert max(distance(ours, exact).values()) < (0.05 if narrow else 1e-5)


@in_both
def test_draws_follow_torchs_seed_and_are_repeated_where_blocks_are_computed_again(narrow: bool) -> None:
    shape = shape_of(kernels=True, dropout=0.3)
    tokens_BT = random_ids((3, 16), 23)
    results = []
    for seed, again in ((1, False), (1, True), (2, False)):
        torch.manual_seed(seed)
        model = vivid_model(replace(shape, gradient_checkpointing=again))
        results.append(trained_once(model, narrow=narrow, tokens_BT=tokens_BT)[1])
    first, repeated, other = results
    assert all(torch.equal(first[name], repeated[name]) for name in first)
    assert not torch.equal(first["transformer.wpe.weight"], other["transformer.wpe.weight"])


@in_both
def test_an_evaluation_drops_nothing(narrow: bool) -> None:
    tokens_BT = random_ids((2, 16), 23)
    losses = []
    for dropout in (0.5, 0.0):
        model = vivid_model(shape_of(kernels=True, dropout=dropout)).eval()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=narrow), torch.no_grad():
            losses.append(model(tokens_BT, tokens_BT))
    assert torch.equal(*losses)

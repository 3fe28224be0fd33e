"""Our own dropout: its expectation, its draws, and attention's gradients under it."""

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from gptwright.arithmetic import step
from gptwright.model.dropout import Dropout, dropped_attention


@pytest.mark.parametrize("p", [0.1, 0.2, 0.5, 1e-4])
def test_the_share_that_is_dropped_and_the_factor_of_the_rest(p: float) -> None:
    torch.manual_seed(1)
    y = Dropout(p)(torch.ones(1_000_000))
    stayed = y != 0
    assert int((~stayed).sum()) == pytest.approx(p * 1e6, abs=5 * math.sqrt(p * 1e6))
    assert y[stayed].unique().tolist() == pytest.approx([1 / (1 - p)], rel=2e-5)


def test_the_four_fates_of_a_draw_know_nothing_of_each_other() -> None:
    torch.manual_seed(2)
    lanes = (Dropout(0.5)(torch.ones(4 * 250_000)) != 0).view(-1, 4).double()
    assert lanes.mean(0).tolist() == pytest.approx([0.5] * 4, abs=5e-3)
    others = torch.corrcoef(lanes.T) - torch.eye(4)
    following = torch.corrcoef(torch.stack([lanes[:-1].flatten(), lanes[1:].flatten()]))[0, 1]
    assert max(float(others.abs().max()), abs(float(following))) < 0.01


@pytest.mark.parametrize("size", [1, 3, 4, 4097])
def test_any_number_of_elements(size: int) -> None:
    torch.manual_seed(3)
    assert Dropout(0.5)(torch.ones(size)).shape == (size,)


def test_a_seed_gives_the_same_fates_and_its_gradient_has_them_too() -> None:
    x, layer = torch.randn(7, 5, requires_grad=True), Dropout(0.3)
    torch.manual_seed(4)
    first = layer(x)
    torch.manual_seed(4)
    assert torch.equal(layer(x), first)
    assert not torch.equal(layer(x), first)
    (gradient,) = torch.autograd.grad(first.sum(), x)
    assert torch.allclose(gradient * x.detach(), first.detach())


def test_evaluation_and_probability_zero_change_nothing() -> None:
    x = torch.randn(9)
    assert torch.equal(Dropout(0.5).eval()(x), x)
    assert torch.equal(Dropout(0.0)(x), x)


def parts(tokens: int, size: int = 8, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    torch.manual_seed(5)
    return [torch.randn(2, 3, tokens, size, dtype=dtype, requires_grad=True) for _ in range(3)]


@pytest.fixture(params=[5, 128])
def rows(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step, "DROPPED_ROWS", request.param)


@pytest.mark.usefixtures("rows")
@pytest.mark.parametrize("tokens", [1, 5, 13])
def test_without_a_drop_attention_is_torchs(tokens: int) -> None:
    q, k, v = parts(tokens)
    expected = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    # so small a probability is rounded to none
    assert torch.allclose(dropped_attention(q, k, v, 1e-9), expected, atol=1e-6)


@pytest.mark.usefixtures("rows")
def test_what_attention_drops_and_what_it_then_gathers() -> None:
    tokens, p = 13, 0.25
    q, k, v = parts(tokens)
    # Values that are one-hot show the probabilities; heads as wide as that ask for longer queries.
    one_hot = torch.eye(tokens).expand(2, 3, -1, -1)
    everything = F.scaled_dot_product_attention(q, k, one_hot, is_causal=True)
    wider = (0, tokens - q.shape[-1])
    longer = F.pad(q, wider) * math.sqrt(tokens / q.shape[-1])
    torch.manual_seed(6)
    dropped = dropped_attention(longer, F.pad(k, wider), one_hot, p)
    stayed = dropped != 0
    assert torch.allclose(dropped[stayed], everything[stayed] / (1 - p), atol=1e-6)
    seen = 2 * 3 * tokens * (tokens + 1) / 2
    assert int(stayed.sum()) == pytest.approx((1 - p) * seen, abs=4 * math.sqrt(p * (1 - p) * seen))
    torch.manual_seed(6)
    assert torch.allclose(dropped_attention(q, k, v, p), dropped @ v, atol=1e-5)


@pytest.mark.usefixtures("rows")
def test_attentions_gradients_are_those_of_finite_differences() -> None:
    def attended(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        torch.manual_seed(7)
        return dropped_attention(q, k, v, 0.3)

    assert torch.autograd.gradcheck(attended, parts(11, size=2, dtype=torch.float64))

"""Each function of step.c against torch's arithmetic on the same numbers."""

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from gptwright.kernels.library import Kernels
from gptwright.model.modern import rms_norm
from tests.kernels.numbers import OFF, draw

pytestmark = pytest.mark.usefixtures("threads")


def every_narrow_number() -> Tensor:
    """All 65,536 of them, NaN and infinity included."""
    return torch.arange(-(2**15), 2**15, dtype=torch.int16).view(torch.bfloat16)


@pytest.mark.parametrize("name", ["gelu", "relu2"])
def test_an_activation_and_its_slope_at_every_number(kernels: Kernels, name: str) -> None:
    x = every_narrow_number().to(kernels.dtype)
    exact = x.double().requires_grad_()
    y = F.gelu(exact) if name == "gelu" else exact.relu() ** 2
    (slope,) = torch.autograd.grad(y.sum(), exact)
    slopes, result, again = torch.ones_like(x), torch.empty_like(x), torch.empty_like(x)
    kernels(name, x, result, x.numel())
    kernels(f"{name}_back", x, slopes, again, x.numel())
    finite = x.isfinite()
    # The normal distribution's tail is known within 1.5e-7, times x; squares may pass the largest number.
    inside = finite & (y.detach().abs() < 3e38) & (slope.abs() < 3e38)
    torch.testing.assert_close(
        result[inside].double(), y.detach()[inside], rtol=OFF[kernels.dtype], atol=2e-6
    )
    torch.testing.assert_close(slopes[inside].double(), slope[inside], rtol=OFF[kernels.dtype], atol=2e-6)
    assert result[x.isnan()].isnan().all()
    assert slopes[x.isnan()].isnan().all()
    # In float32 a compiler may fuse other operations of the same formula.
    off = 1e-6 if kernels.dtype == torch.float32 else 0.0
    torch.testing.assert_close(again, result, equal_nan=True, rtol=off, atol=off)


@pytest.mark.parametrize("name", ["gelu", "relu2"])
def test_a_gradient_is_multiplied_by_the_slope(kernels: Kernels, name: str) -> None:
    dtype = kernels.dtype
    x, g = draw(300, 141, dtype=dtype), draw(300, 141, dtype=dtype, seed=1)
    exact = x.double().requires_grad_()
    torch.autograd.backward(F.gelu(exact) if name == "gelu" else exact.relu() ** 2, g.double())
    kernels(f"{name}_back", x, g, torch.empty_like(x), x.numel())
    assert exact.grad is not None
    torch.testing.assert_close(g.double(), exact.grad, rtol=OFF[kernels.dtype], atol=2e-6)


def test_numbers_round_to_the_nearest_as_torch_rounds(kernels: Kernels) -> None:
    """Ties go to even, NaN stays, what is too large becomes infinite; in float32 nothing is rounded."""
    x = torch.arange(0, 2**32, 9973, dtype=torch.int64).to(torch.int32).view(torch.float32)
    ties = torch.tensor([1 + 2**-8, 1 + 3 * 2**-8, math.nan, math.inf, -math.inf, 3.4e38, 1e-40])
    x = torch.cat((x, ties))[:, None].contiguous()
    # An RMS norm of one channel whose square is lost beside epsilon multiplies by 1.
    dx, branch = torch.empty_like(x), torch.empty_like(x, dtype=kernels.dtype)
    nothing = torch.zeros_like(branch)
    statistics, room = torch.zeros(2, len(x)), torch.empty(2, 2, 1)
    kernels(
        "norm_back",
        x,
        nothing,
        torch.zeros_like(x),
        None,
        statistics,
        dx,
        branch,
        None,
        None,
        room,
        len(x),
        1,
    )
    assert torch.equal(dx.nan_to_num(), x.nan_to_num())
    expected = x.to(kernels.dtype)
    assert torch.equal(branch.isnan(), expected.isnan())
    assert torch.equal(branch.nan_to_num(), expected.nan_to_num())


@pytest.mark.parametrize("has_branch", [True, False])
@pytest.mark.parametrize(("weighted", "biased"), [(True, True), (True, False), (False, False)])
@pytest.mark.parametrize("channels", [1, 7, 64, 130])
def test_a_norm_and_its_way_back(
    kernels: Kernels, channels: int, weighted: bool, biased: bool, has_branch: bool, threads: int
) -> None:
    rows, epsilon, dtype = 300, 1e-5, kernels.dtype
    x, passed = draw(rows, channels).float() * 3 + 1, draw(rows, channels, seed=1).float()
    branch = draw(rows, channels, dtype=dtype, seed=2) if has_branch else None
    weight = draw(channels, seed=3).float() if weighted else None
    bias = draw(channels, seed=4).float() if biased else None
    dy = draw(rows, channels, dtype=dtype, seed=5)
    total = x if branch is None else torch.empty_like(x)
    y, statistics = torch.empty_like(dy), torch.empty(2, rows)
    kernels("norm", x, branch, weight, bias, total, y, statistics, rows, channels, epsilon)

    exact = (x if branch is None else x + branch.float()).double().requires_grad_()
    parameters = [None if p is None else p.double().requires_grad_() for p in (weight, bias)]
    if weight is None:
        expected = exact * (exact.square().mean(dim=1, keepdim=True) + epsilon).rsqrt()
    else:
        expected = F.layer_norm(exact, (channels,), parameters[0], parameters[1], epsilon)
    torch.testing.assert_close(total, exact.detach().float())
    torch.testing.assert_close(y, expected.detach().to(dtype), rtol=2 * OFF[dtype], atol=1e-5)

    torch.autograd.backward((expected * dy.double()).sum() + (exact * passed.double()).sum())
    dx = torch.empty_like(x)
    dbranch = None if branch is None else torch.empty_like(branch)
    dweight, dbias = (None if p is None else torch.empty_like(p) for p in (weight, bias))
    room = torch.empty(threads, 2, channels)
    places = (dx, dbranch, dweight, dbias, room)
    kernels("norm_back", passed, dy, total, weight, statistics, *places, rows, channels)
    assert exact.grad is not None
    torch.testing.assert_close(dx, exact.grad.float(), rtol=1e-4, atol=1e-4)
    if dbranch is not None:
        assert torch.equal(dbranch, dx.to(dtype))
    for ours, theirs in zip((dweight, dbias), parameters, strict=True):
        if ours is not None and theirs is not None and theirs.grad is not None:
            torch.testing.assert_close(ours, theirs.grad.float(), rtol=1e-4, atol=1e-4)


def test_a_norms_gradient_without_another_beside_it(kernels: Kernels, threads: int) -> None:
    x, dy = draw(5, 24).float(), draw(5, 24, dtype=kernels.dtype, seed=1)
    exact = x.clone().requires_grad_()
    torch.autograd.backward(F.layer_norm(exact, (24,)), dy.float())
    y, statistics, dx = torch.empty_like(dy), torch.empty(2, 5), torch.empty_like(x)
    one, dweight, room = torch.ones(24), torch.empty(24), torch.empty(threads, 2, 24)
    kernels("norm", x, None, one, None, x, y, statistics, 5, 24, 1e-5)
    kernels("norm_back", None, dy, x, one, statistics, dx, None, dweight, None, room, 5, 24)
    assert exact.grad is not None
    torch.testing.assert_close(dx, exact.grad, rtol=2e-5, atol=2e-5)


def test_a_branch_is_added_to_the_stream(kernels: Kernels) -> None:
    x, branch = draw(300, 141).float() / 3, draw(300, 141, dtype=kernels.dtype, seed=1)
    y = torch.empty_like(x)
    kernels("add", x, branch, y, x.numel())
    assert torch.equal(y, x + branch.float())


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (300, 141), (700, 64)])
def test_rows_are_summed(kernels: Kernels, rows: int, columns: int) -> None:
    x, sums = draw(rows, columns, dtype=kernels.dtype), torch.empty(columns)
    kernels("sum_rows", x, sums, rows, columns)
    torch.testing.assert_close(sums.double(), x.double().sum(dim=0), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("dropped", [0, 1, 13_107, 65_535])
def test_what_is_dropped_looks_like_chance(kernels: Kernels, dropped: int) -> None:
    x = torch.ones(1_000_000, dtype=kernels.dtype)
    probability, factor = dropped / 65_536, 3.0
    y, other = torch.empty_like(x), torch.empty_like(x)
    kernels("drop", x, y, 7 << 32 | 5, dropped, factor, x.numel())
    kernels("drop", x, other, 7 << 32 | 6, dropped, factor, x.numel())
    gone, others = y == 0, other == 0
    assert torch.equal(y[~gone], 3 * x[~gone])
    error = math.sqrt(probability * (1 - probability) / x.numel())
    assert float(gone.double().mean()) == pytest.approx(probability, abs=4 * error)
    # Neither neighbours nor the same place under another seed know of each other.
    together = probability**2
    pairs = [gone[1:] & gone[:-1], gone[64:] & gone[:-64], gone & others, gone[1:] & others[:-1]]
    for pair in pairs:
        error = math.sqrt(together * (1 - together) / x.numel())
        assert float(pair.double().mean()) == pytest.approx(together, abs=4 * error + 1e-6)


def test_a_seed_drops_the_same_again_whatever_the_dtype(kernels: Kernels) -> None:
    wide, seed = torch.ones(5_000), -(2**62) + 12345
    narrow, stream = torch.ones(5_000, dtype=kernels.dtype), wide.clone()
    kernels("drop", narrow, narrow, seed, 30_000, 2.0, 5_000)
    kernels("drop_stream", stream, stream, seed, 30_000, 2.0, 5_000)
    assert torch.equal(narrow.float(), stream)
    assert 0 < float(stream.mean()) < 2
    # The seed's halves both count.
    for other in (seed ^ 1, seed ^ 1 << 40):
        kernels("drop_stream", wide, stream, other, 30_000, 2.0, 5_000)
        assert not torch.equal(narrow.float(), stream)


@pytest.mark.parametrize("poison", [math.nan, math.inf])
def test_what_is_not_finite_is_not_hidden(kernels: Kernels, poison: float) -> None:
    logits, losses = draw(2, 33, dtype=kernels.dtype), torch.empty(2)
    logits[1, 30] = poison
    kernels("cross_entropy", logits, torch.tensor([4, 5]), losses, 2, 33, 33, 1, 1.0)
    assert torch.equal(losses.isfinite(), torch.tensor([True, False]))


@pytest.mark.parametrize("vocabulary", [1, 65, 1000])
@pytest.mark.parametrize("times", [1.0, 30.0])
def test_cross_entropy_and_its_gradient(kernels: Kernels, vocabulary: int, times: float) -> None:
    rows = 40
    logits = draw(rows, vocabulary, dtype=kernels.dtype, times=times)
    targets = torch.arange(rows) % vocabulary
    exact = logits.double().requires_grad_()
    expected = F.cross_entropy(exact, targets, reduction="none")
    torch.autograd.backward(expected.sum())
    # Rows that are longer than the vocabulary.
    room = torch.full((rows, vocabulary + 3), math.nan, dtype=kernels.dtype)
    room[:, :vocabulary] = logits
    losses, kept = torch.empty(rows), room.clone()
    kernels("cross_entropy", kept, targets, losses, rows, vocabulary, vocabulary + 3, 0, 0.5)
    assert torch.equal(kept[:, :vocabulary], logits)
    assert not kept[:, vocabulary:].any()
    torch.testing.assert_close(losses.double(), expected.detach(), rtol=1e-6, atol=1e-6)
    again = torch.empty(rows)
    kernels("cross_entropy", room, targets, again, rows, vocabulary, vocabulary + 3, 1, 0.5)
    assert torch.equal(again, losses)
    assert not room[:, vocabulary:].any()
    assert exact.grad is not None
    torch.testing.assert_close(
        room[:, :vocabulary].double(), 0.5 * exact.grad, rtol=OFF[kernels.dtype], atol=1e-6
    )


@pytest.mark.parametrize("target", [-1, 33, 2**40])
def test_a_target_beyond_the_vocabulary_has_no_loss(kernels: Kernels, target: int) -> None:
    logits, losses = draw(2, 33, dtype=kernels.dtype), torch.empty(2)
    kernels("cross_entropy", logits, torch.tensor([4, target]), losses, 2, 33, 33, 1, 1.0)
    assert torch.equal(losses.isnan(), torch.tensor([False, True]))


def test_an_rms_norm_is_that_of_the_modern_model(kernels: Kernels) -> None:
    x = draw(6, 48).float()
    dtype = kernels.dtype
    y, statistics = torch.empty(6, 48, dtype=dtype), torch.empty(2, 6)
    kernels("norm", x, None, None, None, x, y, statistics, 6, 48, torch.finfo(torch.float32).eps)
    torch.testing.assert_close(y, rms_norm(x).to(dtype), rtol=2 * OFF[dtype], atol=1e-6)

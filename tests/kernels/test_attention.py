"""Causal attention and its gradients against attention that is written out exactly."""

import math
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor

from gptwright.kernels.library import Kernels
from gptwright.model.modern import Rotary
from tests.kernels.numbers import draw

EPSILON = 1e-6


@dataclass(frozen=True)
class Case:
    """Sequences, tokens, heads, channels of a head, and what is done to queries and keys."""

    B: int
    T: int
    H: int
    D: int
    scales: bool = False
    turns: bool = False

    @property
    def rotary(self) -> Rotary | None:
        return Rotary(self.D, self.T) if self.turns else None

    def how(self, seed: int, dropped: int, factor: float) -> tuple[object, ...]:
        """Arguments of both kernels after the tensors."""
        factors = (None, None) if self.rotary is None else (self.rotary.own_TD, self.rotary.others_TD)
        return *factors, int(self.scales), EPSILON, seed, dropped, factor, self.B, self.T, self.H, self.D


# A single token; parts of a tile, of a vector and of a panel; several blocks of queries, and of keys.
CASES = [
    Case(2, 1, 1, 2),
    Case(1, 7, 2, 5),
    Case(12, 64, 4, 32),
    Case(2, 65, 3, 16, scales=True, turns=True),
    Case(1, 130, 2, 80, scales=True),
    Case(1, 129, 1, 6, turns=True),
    Case(1, 300, 2, 64),
]


def attend(
    kernels: Kernels,
    case: Case,
    qkv: Tensor,
    dy: Tensor,
    *,
    seed: int = 0,
    dropped: int = 0,
    factor: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """What is gathered, and the gradient of `qkv`."""
    y, logarithms = torch.full_like(dy, math.nan), torch.empty(case.B * case.H, case.T)
    how = case.how(seed, dropped, factor)
    kernels("attention", qkv, y, logarithms, *how)  # type: ignore[arg-type]
    d = torch.full_like(qkv, math.nan)
    kernels("attention_back", qkv, y, dy, logarithms, d, *how)  # type: ignore[arg-type]
    return y, d


def attend_exactly(
    case: Case, qkv: Tensor, dy: Tensor, mask_NTT: Tensor | float = 1.0
) -> tuple[Tensor, Tensor]:
    """The same in float64."""
    x = qkv.double().requires_grad_()
    B, T, H, D = case.B, case.T, case.H, case.D
    tokens = x.view(B, T, 3, H, D)
    qk, v = tokens[:, :, :2], tokens[:, :, 2:]
    if case.scales:
        qk = qk * (qk.square().mean(dim=-1, keepdim=True) + EPSILON).rsqrt()
    if case.rotary is not None:
        qk = case.rotary.double()(qk, slice(T))
    q, k, v = torch.cat((qk, v), dim=2).permute(2, 0, 3, 1, 4).flatten(1, 2)
    scores = q @ k.mT / math.sqrt(D)
    p = scores.masked_fill(torch.ones(T, T).triu_(1).bool(), -math.inf).softmax(dim=-1) * mask_NTT
    y = (p @ v).view(B, H, T, D).transpose(1, 2).reshape(B * T, H * D)
    torch.autograd.backward(y, dy.double())
    assert x.grad is not None
    return y.detach(), x.grad


def inputs(case: Case, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    M, C = case.B * case.T, case.H * case.D
    return draw(M, 3 * C, dtype=dtype, times=1.5), draw(M, C, dtype=dtype, seed=1)


def off(dtype: torch.dtype) -> float:
    """How far results may be off, over their own length."""
    return 0.006 if dtype == torch.bfloat16 else 1e-6


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.usefixtures("threads")
def test_attention_and_its_way_back(multiplying: Kernels, case: Case) -> None:
    qkv, dy = inputs(case, multiplying.dtype)
    y, d = attend(multiplying, case, qkv, dy)
    exact_y, exact_d = attend_exactly(case, qkv, dy)
    furthest = off(multiplying.dtype)
    assert float((y - exact_y).norm() / exact_y.norm()) < furthest
    # Each of queries, keys and values; a single token has but values.
    for ours, exact in zip(d.chunk(3, dim=1), exact_d.chunk(3, dim=1), strict=True):
        near = 1.5 * furthest * float(exact.norm()) + 1e-6 * float(dy.double().norm())
        assert float((ours - exact).norm()) < near


def test_no_token_sees_a_later_one(multiplying: Kernels) -> None:
    case = Case(1, 150, 2, 16)
    qkv, dy = inputs(case, multiplying.dtype)
    y, _ = attend(multiplying, case, qkv, dy)
    for seen in (1, 63, 64, 65, 127, 149):
        other = qkv.clone()
        other[seen:] = draw(150 - seen, 96, dtype=multiplying.dtype, seed=2, times=5.0)
        changed, _ = attend(multiplying, case, other, dy)
        assert torch.equal(changed[:seen], y[:seen])
        assert not torch.equal(changed[seen], y[seen])
        # Nor does a gradient reach a later one.
        late = dy.clone()
        late[seen:] = 0
        _, d = attend(multiplying, case, qkv, late)
        assert not d[seen:].any()


@pytest.mark.parametrize("T", [13, 140])
@pytest.mark.usefixtures("threads")
def test_dropout_drops_the_same_both_ways(kernels: Kernels, T: int) -> None:
    case, seed, dropped, factor = Case(2, T, 2, 16), 2**40 + 9, 20_000, 65_536 / 45_536
    qkv, dy = inputs(case, kernels.dtype)
    mask = torch.ones(4, T, T, dtype=kernels.dtype)
    kernels("drop", mask, mask, seed, dropped, 1.0, mask.numel())
    y, d = attend(kernels, case, qkv, dy, seed=seed, dropped=dropped, factor=factor)
    exact_y, exact_d = attend_exactly(case, qkv, dy, mask.double() * factor)
    # A single weight that was dropped on one way alone would be far more.
    assert float((y - exact_y).norm() / exact_y.norm()) < off(kernels.dtype)
    assert float((d - exact_d).norm() / exact_d.norm()) < 1.5 * off(kernels.dtype)


@pytest.mark.parametrize("poison", [math.nan, math.inf])
def test_what_is_not_finite_is_not_hidden(multiplying: Kernels, poison: float) -> None:
    case = Case(1, 20, 1, 4)
    qkv, dy = inputs(case, multiplying.dtype)
    qkv[9, 0] = poison
    y, d = attend(multiplying, case, qkv, dy)
    assert y[9].isnan().all()
    assert y[:9].isfinite().all()
    assert y[10:].isfinite().all()
    assert d[9].isnan().any()


def test_bits_do_not_depend_on_the_number_of_threads(kernels: Kernels) -> None:
    case = Case(3, 130, 3, 24, scales=True, turns=True)
    qkv, dy = inputs(case, kernels.dtype)
    before, results = torch.get_num_threads(), []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        results.append(attend(kernels, case, qkv, dy))
    torch.set_num_threads(before)
    for other in results[1:]:
        assert all(torch.equal(one, another) for one, another in zip(results[0], other, strict=True))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits the address space, and reads /proc")
def test_a_thread_without_room_is_a_lack_of_memory(kernels: Kernels) -> None:
    """The run is then cut finer, and does not crash."""
    dtype = str(kernels.dtype).removeprefix("torch.")
    done = subprocess.run(
        [sys.executable, "-m", "tests.kernels.room_driver", dtype],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == (
        "there is no room for a thread to work in (attention); lack of memory: True\nworks again: True\n"
    )

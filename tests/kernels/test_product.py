"""Products of a linear layer and of its gradients against exact ones of the same numbers."""

import math

import pytest
import torch
from torch import Tensor

from gptwright.kernels.library import Kernels
from tests.kernels.numbers import OFF, draw

# Tokens, inputs, outputs: less than a tile, what fills none, whole ones, several passes.
SIZES = [
    (1, 2, 1),
    (5, 38, 7),
    (77, 66, 130),
    (96, 128, 192),
    (40, 2, 1601),
    (2101, 34, 50),
    (9, 3202, 3201),
    (70, 6210, 130),
    (50, 98, 6210),
]


def linear(kernels: Kernels, x: Tensor, w: Tensor, bias: Tensor | None, *, row: int) -> Tensor:
    """`y [M, O]` in rows that begin so many elements apart, with -1 between."""
    (M, inputs), outputs = x.shape, len(w)
    y = torch.full((M, row), -1.0, dtype=kernels.dtype)
    kernels("linear", x, w, bias, y, M, inputs, outputs, row)
    return y


@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize(("M", "inputs", "outputs"), SIZES)
@pytest.mark.usefixtures("threads")
def test_a_linear_layer(multiplying: Kernels, M: int, inputs: int, outputs: int, biased: bool) -> None:
    dtype = multiplying.dtype
    x, w = draw(M, inputs, dtype=dtype), torch.randn(outputs, inputs)
    bias = torch.randn(outputs) if biased else None
    y = linear(multiplying, x, w, bias, row=outputs + 3)
    exact = x.double() @ w.to(dtype).double().t() + (0 if bias is None else bias.double())
    torch.testing.assert_close(y[:, :outputs].double(), exact, rtol=OFF[dtype], atol=1e-3)
    assert (y[:, outputs:] == -1).all()


@pytest.mark.parametrize(("M", "inputs", "outputs"), SIZES)
@pytest.mark.usefixtures("threads")
def test_the_gradient_of_what_went_in(multiplying: Kernels, M: int, inputs: int, outputs: int) -> None:
    dtype, w, row = multiplying.dtype, torch.randn(outputs, inputs), outputs + 2 + outputs % 2
    dy = torch.zeros(M, row, dtype=dtype)
    dy[:, :outputs] = draw(M, outputs)
    dx = torch.empty(M, inputs, dtype=dtype)
    multiplying("linear_input", dy, w, dx, M, inputs, outputs, row)
    exact = dy[:, :outputs].double() @ w.to(dtype).double()
    torch.testing.assert_close(dx.double(), exact, rtol=OFF[dtype], atol=1e-3)


@pytest.mark.parametrize(("M", "inputs", "outputs"), SIZES)
@pytest.mark.usefixtures("threads")
def test_the_gradient_of_a_weight(multiplying: Kernels, M: int, inputs: int, outputs: int) -> None:
    dtype, row = multiplying.dtype, outputs + 1
    dy, x = draw(M, row, dtype=dtype), draw(M, inputs, dtype=dtype, seed=1)
    dw = torch.full((outputs, inputs), math.nan)
    exact = dy[:, :outputs].double().t() @ x.double()
    multiplying("linear_weight", dy, x, dw, M, inputs, outputs, row, 0)
    torch.testing.assert_close(dw.double(), exact, rtol=1e-5, atol=1e-3)
    multiplying("linear_weight", dy, x, dw, M, inputs, outputs, row, 1)
    torch.testing.assert_close(dw.double(), 2 * exact, rtol=1e-5, atol=2e-3)


def test_bits_do_not_depend_on_the_number_of_threads(multiplying: Kernels) -> None:
    """With 16 and few tiles of outputs, inputs are split too."""
    kernels = multiplying
    x, dy = draw(2100, 130, dtype=kernels.dtype), draw(2100, 70, dtype=kernels.dtype, seed=1)
    w = torch.randn(70, 130)
    before, results = torch.get_num_threads(), []
    for threads in (1, 2, 3, 16):
        torch.set_num_threads(threads)
        dx, dw = torch.empty_like(x), torch.empty_like(w)
        kernels("linear_input", dy, w, dx, 2100, 130, 70, 70)
        kernels("linear_weight", dy, x, dw, 2100, 130, 70, 70, 0)
        results.append((linear(kernels, x, w, None, row=70), dx, dw))
    torch.set_num_threads(before)
    for other in results[1:]:
        assert all(torch.equal(one, another) for one, another in zip(results[0], other, strict=True))


@pytest.mark.parametrize("poison", [math.nan, math.inf])
def test_what_is_not_finite_stays_in_its_row(multiplying: Kernels, poison: float) -> None:
    x, w = draw(8, 34, dtype=multiplying.dtype), torch.randn(20, 34)
    x[3, 33] = poison
    y = linear(multiplying, x, w, None, row=20)
    assert not y[3].isfinite().any()
    assert y[[0, 1, 2, 4, 5, 6, 7]].isfinite().all()

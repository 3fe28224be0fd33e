"""The product in pieces is the plain one."""

from collections.abc import Iterator

import pytest
import torch
from torch import nn

from gptwright.model.linear import LEAST_WEIGHTS, MOST_ROWS, Linear


@pytest.fixture
def threads() -> Iterator[None]:
    """Three threads, which no width here divides by without a rest."""
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def products(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The shapes of the weights that batched products got."""
    seen: list[tuple[int, ...]] = []
    bmm = torch.bmm

    def spy(rows: torch.Tensor, shares: torch.Tensor) -> torch.Tensor:
        seen.append(tuple(shares.shape))
        return bmm(rows, shares)

    monkeypatch.setattr(torch, "bmm", spy)
    return seen


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("outputs", [600, 601, 602])
@pytest.mark.parametrize("lead", [(), (1,), (1, 1)])
def test_one_row_is_shared_and_equal(
    products: list[tuple[int, ...]], lead: tuple[int, ...], outputs: int, *, bias: bool
) -> None:
    """But for how MKL rounds: an output at the edge of a share may be summed in another order there."""
    torch.manual_seed(0)
    linear = Linear(256, outputs, bias=bias)
    row = torch.randn(*lead, 256)
    with torch.inference_mode():
        plain = nn.Linear.forward(linear, row)
        shared = linear(row)
    assert products == [(3, 256, 200)]
    assert shared.shape == (*lead, outputs)
    torch.testing.assert_close(shared, plain, rtol=0, atol=1e-6)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("outputs", [612, 601])
@pytest.mark.parametrize("lead", [(2, 1), (16, 1), (1, MOST_ROWS)])
def test_a_few_rows_are_cut_finer_and_equal(
    products: list[tuple[int, ...]], lead: tuple[int, ...], outputs: int, *, bias: bool
) -> None:
    torch.manual_seed(0)
    linear = Linear(256, outputs, bias=bias)
    rows = torch.randn(*lead, 256)
    with torch.inference_mode():
        plain = nn.Linear.forward(linear, rows)
        cut = linear(rows)
        torch.set_num_threads(1)
        alone = linear(rows)
    assert products == [(18, 256, outputs // 18), (16, 256, outputs // 16)]
    assert cut.shape == (*lead, outputs)
    torch.testing.assert_close(cut, plain, rtol=0, atol=2e-6)
    torch.testing.assert_close(alone, plain, rtol=0, atol=2e-6)


@pytest.mark.usefixtures("threads")
def test_all_else_is_the_plain_product(products: list[tuple[int, ...]]) -> None:
    torch.manual_seed(0)
    big, small = Linear(256, 600), Linear(256, LEAST_WEIGHTS // 256 - 1)
    row = torch.randn(1, 256)
    assert torch.equal(small(row), nn.Linear.forward(small, row))
    many = row.expand(MOST_ROWS + 1, 256)
    assert torch.equal(big(many), nn.Linear.forward(big, many))
    double = Linear(256, 600).double()
    assert torch.equal(double(row.double()), nn.Linear.forward(double, row.double()))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert big(row).dtype == torch.bfloat16
    torch.set_num_threads(1)
    assert torch.equal(big(row), nn.Linear.forward(big, row))
    assert products == []


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("rows", [1, 5])
def test_a_product_in_pieces_has_the_plain_gradients(products: list[tuple[int, ...]], rows: int) -> None:
    torch.manual_seed(0)
    linear = Linear(256, 601)
    row = torch.randn(rows, 256, requires_grad=True)
    inputs = [row, *linear.parameters()]
    shared = torch.autograd.grad(linear(row).square().sum(), inputs)
    plain = torch.autograd.grad(nn.Linear.forward(linear, row).square().sum(), inputs)
    assert len(products) == 1
    for ours, wanted in zip(shared, plain, strict=True):
        torch.testing.assert_close(ours, wanted)


@pytest.mark.usefixtures("threads")
def test_a_compiled_layer_stays_one_graph() -> None:
    torch.manual_seed(0)
    linear = Linear(256, 600)
    row = torch.randn(1, 256)
    compiled = torch.compile(linear, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(row), nn.Linear.forward(linear, row))

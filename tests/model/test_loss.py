"""The loss in chunks is the loss, with its gradients, in every dtype and with every way to train."""

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from gptwright.arithmetic.shape import ModelShape
from gptwright.config.schema import TrainConfig
from gptwright.model.gpt import GPT
from gptwright.model.loss import chunked_cross_entropy, chunked_losses

CHUNKS = (1, 7, 16, 50, 51, 1000)


@pytest.fixture
def tensors() -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    hidden, weight = torch.randn(50, 24), torch.randn(37, 24)
    return hidden.requires_grad_(), weight.requires_grad_(), torch.randint(37, (50,))


def gradients_of(loss: Tensor, *inputs: Tensor, scale: float = 1.0) -> tuple[Tensor, ...]:
    return torch.autograd.grad(scale * loss, inputs)


@pytest.mark.parametrize("chunk", CHUNKS)
@pytest.mark.parametrize("scale", [1.0, 0.25, 3000.0])
def test_loss_and_gradients_are_torchs(
    tensors: tuple[Tensor, Tensor, Tensor], chunk: int, scale: float
) -> None:
    hidden, weight, targets = (t.double() if t.is_floating_point() else t for t in tensors)
    whole = F.cross_entropy(hidden @ weight.t(), targets)
    parts = chunked_cross_entropy(hidden, weight, targets, chunk)
    assert parts.item() == pytest.approx(whole.item(), rel=1e-6)
    expected = gradients_of(whole, hidden, weight, scale=scale)
    for ours, theirs in zip(gradients_of(parts, hidden, weight, scale=scale), expected, strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-5, atol=1e-7 * scale)


@pytest.mark.parametrize("chunk", CHUNKS)
def test_each_tokens_loss(tensors: tuple[Tensor, Tensor, Tensor], chunk: int) -> None:
    hidden, weight, targets = tensors
    losses = chunked_losses(hidden, weight, targets, chunk)
    assert not losses.requires_grad
    assert torch.allclose(losses, F.cross_entropy(hidden @ weight.t(), targets, reduction="none"), atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_under_autocast_it_is_as_near_to_float32_as_the_whole_loss(
    tensors: tuple[Tensor, Tensor, Tensor], dtype: torch.dtype
) -> None:
    hidden, weight, targets = tensors
    exact = F.cross_entropy(hidden @ weight.t(), targets)
    truth = gradients_of(exact, hidden, weight)
    with torch.autocast("cpu", dtype=dtype):
        whole = F.cross_entropy(hidden @ weight.t(), targets)
        parts = chunked_cross_entropy(hidden, weight, targets, 16)
    assert parts.item() == pytest.approx(exact.item(), rel=5e-3)
    for ours, theirs, exactly in zip(
        gradients_of(parts, hidden, weight), gradients_of(whole, hidden, weight), truth, strict=True
    ):
        assert ours.dtype == torch.float32
        assert (ours - exactly).norm() < 1.5 * (theirs - exactly).norm() + 1e-6


def test_in_float16_a_gradient_that_is_tiny_for_a_token_is_not_lost() -> None:
    # A mean over 100,000 tokens leaves each logit a gradient below what float16 can hold.
    torch.manual_seed(0)
    hidden = (0.01 * torch.randn(100_000, 4)).requires_grad_()
    weight, targets = torch.randn(9, 4).requires_grad_(), torch.randint(9, (100_000,))
    exact = gradients_of(F.cross_entropy(hidden @ weight.t(), targets), hidden)[0]
    with torch.autocast("cpu", dtype=torch.float16):
        loss = chunked_cross_entropy(hidden, weight, targets, 1024)
    assert torch.allclose(gradients_of(loss, hidden)[0], exact, rtol=0.02, atol=1e-8)


def test_a_second_backward_pass_is_refused_and_not_wrong(tensors: tuple[Tensor, Tensor, Tensor]) -> None:
    hidden, weight, targets = tensors
    loss = chunked_cross_entropy(hidden, weight, targets, 16)
    loss.backward(retain_graph=True)  # type: ignore[no-untyped-call]
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("arch", ["gpt2", "modern"])
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_model_trains_as_with_all_logits(
    request: pytest.FixtureRequest, arch: Literal["gpt2", "modern"], tied: bool, compiled: bool
) -> None:
    """One model's kernels are made for real, of the architecture whose operations are our own."""
    if not tied or arch == "gpt2":
        request.getfixturevalue("captured")
    config = TrainConfig(
        n_layer=1 if compiled else 2,
        n_head=2,
        n_embd=16,
        block_size=12,
        arch=arch,
        tie_weights=tied,
        zero_init=False,
    )
    shape = ModelShape.of(config, 31)
    torch.manual_seed(1)
    whole = GPT(shape)
    parts = GPT(replace(shape, loss_chunk=10))
    parts.load_state_dict(whole.state_dict())
    tokens, targets = torch.randint(31, (2, 3, 12))
    torch._dynamo.reset()
    run: Callable[..., Tensor] = parts.compiled() if compiled else parts
    loss = whole(tokens, targets)
    loss.backward()
    ours = run(tokens, targets)
    ours.backward()  # type: ignore[no-untyped-call]
    assert ours.item() == pytest.approx(loss.item(), rel=1e-6)
    for (name, a), b in zip(whole.named_parameters(), parts.parameters(), strict=True):
        assert a.grad is not None, name
        assert b.grad is not None, name
        assert torch.allclose(a.grad, b.grad, rtol=1e-4, atol=1e-7), name
    with torch.no_grad():
        each = parts(tokens, targets, per_window=True)
        assert parts(tokens, targets).item() == pytest.approx(loss.item(), rel=1e-6)
    assert torch.allclose(each, whole(tokens, targets, per_window=True), atol=1e-5)


@pytest.mark.parametrize("grad", [True, False])
def test_what_is_compiled_does_not_grow_with_the_chunks(grad: bool) -> None:
    operations = []
    for chunk in (18, 2):
        config = TrainConfig(n_layer=1, n_head=2, n_embd=16, block_size=12, loss_chunk=chunk)
        model = GPT(ModelShape.of(config, 31))
        model.compiled()
        torch._dynamo.reset()
        tokens, targets = torch.randint(31, (2, 3, 12))
        with torch.set_grad_enabled(grad):
            seen = torch._dynamo.explain(model)(tokens, targets, per_window=not grad)
        operations.append(seen.op_count)
    assert operations[0] == operations[1]

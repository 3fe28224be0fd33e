"""Cross-entropy whose logits are never all there at once.

With GPT-2's vocabulary the logits of a micro-batch are the largest tensor of a training step, several times
over: themselves, their log-softmax and two gradients. Here the output head and the loss work on a few hundred
tokens at a time and make the gradients of both inputs on the way, so that the backward pass finds them ready.
It is the same number of products; what is added is only that the head's gradient is summed chunk by chunk.

Gradients are taken of the sum of losses and divided by the number of tokens in float32 at the end, so that in
float16 none is too small.

Shapes: N tokens, C n_embd, V vocab_size, K tokens of a chunk.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx


@torch.compiler.disable
def chunked_cross_entropy(hidden_NC: Tensor, weight_VC: Tensor, targets_N: Tensor, chunk: int) -> Tensor:
    """The mean cross-entropy in nats of targets under a linear head, `chunk` tokens at a time."""
    mean: Tensor = _ChunkedCrossEntropy.apply(hidden_NC, weight_VC, targets_N, chunk)
    return mean


@torch.compiler.disable
@torch.no_grad()
def chunked_losses(hidden_NC: Tensor, weight_VC: Tensor, targets_N: Tensor, chunk: int) -> Tensor:
    """The cross-entropy of each of N tokens, without gradients."""
    losses = [
        _losses(logits_KV, targets_K)[0]
        for _, logits_KV, targets_K in _chunks(*_as_multiplied(hidden_NC, weight_VC), targets_N, chunk)
    ]
    return torch.cat(losses)


class _ChunkedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden_NC: Tensor, weight_VC: Tensor, targets_N: Tensor, chunk: int) -> Tensor:
        x_NC, w_VC = _as_multiplied(hidden_NC, weight_VC)
        differentiated = any(ctx.needs_input_grad)
        dx_NC = torch.empty_like(x_NC) if differentiated else None
        dw_VC = torch.zeros_like(weight_VC) if differentiated else None
        total = torch.zeros((), dtype=torch.float32, device=hidden_NC.device)
        for rows, logits_KV, targets_K in _chunks(x_NC, w_VC, targets_N, chunk):
            losses_K, normalizer_K1 = _losses(logits_KV, targets_K)
            total += losses_K.sum()
            if dx_NC is None or dw_VC is None:
                continue
            # Softmax less one at the target, in place of the logits.
            d_KV = logits_KV.sub_(normalizer_K1).exp_()
            d_KV.scatter_add_(1, targets_K[:, None], -torch.ones_like(normalizer_K1))
            d_KV = d_KV.to(x_NC.dtype)
            torch.mm(d_KV, w_VC, out=dx_NC[rows])
            if x_NC.dtype == dw_VC.dtype:
                dw_VC.addmm_(d_KV.t(), x_NC[rows])
            else:
                dw_VC += d_KV.t() @ x_NC[rows]
        if dx_NC is not None and dw_VC is not None:
            ctx.save_for_backward(dx_NC, dw_VC)
        ctx.dtype = hidden_NC.dtype
        return total / len(targets_N)

    @staticmethod
    def backward(ctx: FunctionCtx, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        dx_NC, dw_VC = ctx.saved_tensors  # type: ignore[attr-defined]
        scale = gradients[0] / len(dx_NC)
        return dx_NC.to(ctx.dtype) * scale, dw_VC.mul_(scale), None, None  # type: ignore[attr-defined]


def _as_multiplied(hidden_NC: Tensor, weight_VC: Tensor) -> tuple[Tensor, Tensor]:
    """Both in the dtype in which autocast would multiply them."""
    kind = hidden_NC.device.type
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else hidden_NC.dtype
    return hidden_NC.detach().to(dtype), weight_VC.detach().to(dtype)


def _chunks(
    x_NC: Tensor, w_VC: Tensor, targets_N: Tensor, chunk: int
) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Rows, their logits in float32, which the caller may overwrite, and their targets."""
    for begin in range(0, len(x_NC), chunk):
        rows = slice(begin, begin + chunk)
        with torch.autocast(x_NC.device.type, enabled=False):
            logits_KV = x_NC[rows] @ w_VC.t()
        yield rows, logits_KV.float(), targets_N[rows]


def _losses(logits_KV: Tensor, targets_K: Tensor) -> tuple[Tensor, Tensor]:
    """Losses of a chunk, and the logarithms of its softmax's denominators as `[K, 1]`."""
    normalizer_K1 = logits_KV.logsumexp(dim=1, keepdim=True)
    return (normalizer_K1 - logits_KV.gather(1, targets_K[:, None])).squeeze(1), normalizer_K1

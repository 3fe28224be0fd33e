"""Cross-entropy whose logits are never all there at once.

With GPT-2's vocabulary the logits of a micro-batch are the largest tensor of a training step, several times
over: themselves, their log-softmax and two gradients. Here the output head and the loss work on a few hundred
tokens at a time and make the gradients of both inputs on the way, so that the backward pass finds them ready.
It is the same number of products; what is added is only that the head's gradient is summed chunk by chunk.

Gradients are taken of the sum of losses and divided by the number of tokens in float32 at the end, so that in
float16 none is too small.

Shapes: N tokens, C n_embd, V vocab_size, K tokens of a chunk.
"""

from typing import Any

import torch
from torch import Tensor

from gptwright.model.tied import TableGradient


def chunked_cross_entropy(
    hidden_NC: Tensor, weight_VC: Tensor, targets_N: Tensor, chunk: int, table: TableGradient | None = None
) -> Tensor:
    """The mean cross-entropy in nats of targets under a linear head, `chunk` tokens at a time.

    Args:
        hidden_NC: what the head is given.
        weight_VC: the head.
        targets_N: ids.
        chunk: tokens at a time.
        table: takes the head's gradient, if its weight is the token embedding too; None hands it out.
    """
    mean: Tensor = _ChunkedCrossEntropy.apply(hidden_NC, weight_VC, targets_N, chunk, table)  # type: ignore[no-untyped-call]
    return mean


@torch.no_grad()
def chunked_losses(hidden_NC: Tensor, weight_VC: Tensor, targets_N: Tensor, chunk: int) -> Tensor:
    """The cross-entropy of each of N tokens, without gradients."""
    x_NC, w_VC = _as_multiplied(hidden_NC, weight_VC)
    parts = zip(torch.split(x_NC, chunk), torch.split(targets_N, chunk), strict=True)
    return torch.cat([_losses(_logits(x_KC, w_VC), targets_K)[0] for x_KC, targets_K in parts])


class _ChunkedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(  # noqa: PLR0917 - autograd passes all by position
        ctx: Any,
        hidden_NC: Tensor,
        weight_VC: Tensor,
        targets_N: Tensor,
        chunk: int,
        table: TableGradient | None,
    ) -> Tensor:
        x_NC, w_VC = _as_multiplied(hidden_NC, weight_VC)
        total = torch.zeros((), dtype=torch.float32, device=hidden_NC.device)
        dx_NC, dw_VC = torch.empty_like(x_NC), torch.zeros_like(weight_VC)
        parts = zip(
            torch.split(x_NC, chunk), torch.split(targets_N, chunk), torch.split(dx_NC, chunk), strict=True
        )
        for x_KC, targets_K, dx_KC in parts:
            total += _one_chunk(x_KC, w_VC, targets_K, dx_KC, dw_VC)
        ctx.save_for_backward(dx_NC, dw_VC)
        ctx.dtype, ctx.table = hidden_NC.dtype, table
        return total / len(targets_N)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        dx_NC, dw_VC = ctx.saved_tensors
        scale = gradients[0] / len(dx_NC)
        dhidden_NC = dx_NC.to(ctx.dtype) * scale
        dw_VC.mul_(scale)
        if ctx.table is None:
            return dhidden_NC, dw_VC, None, None, None
        ctx.table.leave(dw_VC)
        return dhidden_NC, None, None, None, None


def _one_chunk(x_KC: Tensor, w_VC: Tensor, targets_K: Tensor, dx_KC: Tensor, dw_VC: Tensor) -> Tensor:
    """The sum of a chunk's losses; its gradient goes into `dx_KC` and is added to `dw_VC`."""
    loss, d_KV = _loss_and_gradient(_logits(x_KC, w_VC), targets_K, dtype=x_KC.dtype)
    torch.mm(d_KV, w_VC, out=dx_KC)
    if x_KC.dtype == dw_VC.dtype:
        dw_VC.addmm_(d_KV.t(), x_KC)
    else:
        dw_VC += d_KV.t() @ x_KC
    return loss


def _loss_and_gradient(logits_KV: Tensor, targets_K: Tensor, *, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The sum of the losses, and softmax less one at the target, in place of the logits."""
    losses_K, exponentials_KV, sums_K1 = _losses(logits_KV, targets_K)
    d_KV = exponentials_KV.div_(sums_K1)
    d_KV.scatter_add_(1, targets_K[:, None], -torch.ones_like(sums_K1))
    return losses_K.sum(), d_KV.to(dtype)


def _as_multiplied(hidden_NC: Tensor, weight_VC: Tensor) -> tuple[Tensor, Tensor]:
    """Both in the dtype in which autocast would multiply them."""
    kind = hidden_NC.device.type
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else hidden_NC.dtype
    return hidden_NC.detach().to(dtype), weight_VC.detach().to(dtype)


def _logits(x_KC: Tensor, w_VC: Tensor) -> Tensor:
    """In float32."""
    with torch.autocast(x_KC.device.type, enabled=False):
        return (x_KC @ w_VC.t()).float()


def _losses(logits_KV: Tensor, targets_K: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Losses of a chunk; exponentials below the largest, in place of the logits; their sums as `[K, 1]`."""
    largest_K1 = logits_KV.amax(dim=1, keepdim=True)
    below_K1 = logits_KV.gather(1, targets_K[:, None]) - largest_K1
    exponentials_KV = logits_KV.sub_(largest_K1).exp_()
    sums_K1 = exponentials_KV.sum(dim=1, keepdim=True)
    return (sums_K1.log() - below_K1).squeeze(1), exponentials_KV, sums_K1

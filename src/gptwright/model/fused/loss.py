"""The output head and the cross-entropy as one operation.

The gradients of both inputs are made on the way, of all tokens or of some at a time, so that the logits, the
largest tensor of a step, are there once, overwritten by their gradient, and not for long.

Shapes: C n_embd, M tokens of a batch, K of them at a time, V vocabulary.
"""

from typing import Any

import torch
from torch import Tensor

from gptwright.kernels.library import Kernels
from gptwright.model.fused.products import input_gradient, product, weight_gradient
from gptwright.model.tied import TableGradient


def fused_loss(  # noqa: PLR0917 - as autograd passes them
    hidden_MC: Tensor,
    head_VC: Tensor,
    targets_M: Tensor,
    kernels: Kernels,
    table: TableGradient | None,
    chunk: int = 0,
) -> Tensor:
    """The mean cross-entropy in nats under a linear head.

    Args:
        hidden_MC: what the head is given, in the kernels' dtype.
        head_VC: the head, float32.
        targets_M: ids.
        kernels: those of this machine.
        table: takes the head's gradient, if its weight is the token embedding too; None hands it out.
        chunk: tokens at a time; 0: all.
    """
    mean: Tensor = _Loss.apply(hidden_MC, head_VC, targets_M, kernels, table, chunk)  # type: ignore[no-untyped-call]
    return mean


@torch.no_grad()
def fused_losses(
    hidden_MC: Tensor, head_VC: Tensor, targets_M: Tensor, kernels: Kernels, chunk: int = 0
) -> Tensor:
    """The cross-entropy of each of M tokens, without gradients."""
    size = chunk or len(targets_M)
    parts = zip(torch.split(hidden_MC, size), torch.split(targets_M, size), strict=True)
    return torch.cat([_losses(kernels, product(kernels, x_KC, head_VC), ids_K) for x_KC, ids_K in parts])


def _losses(kernels: Kernels, logits_KV: Tensor, targets_K: Tensor, *, of: int = 0) -> Tensor:
    """Losses `[K]`; with `of` tokens in all the logits become the gradient of those tokens' mean."""
    losses_K = torch.empty(len(targets_K))
    (K, V), row = logits_KV.shape, logits_KV.stride(0)
    kernels("cross_entropy", logits_KV, targets_K, losses_K, K, V, row, int(of > 0), 1 / max(of, 1))
    return losses_K


class _Loss(torch.autograd.Function):
    @staticmethod
    def forward(  # noqa: PLR0917 - autograd passes all by position
        ctx: Any,
        hidden_MC: Tensor,
        head_VC: Tensor,
        targets_M: Tensor,
        kernels: Kernels,
        table: TableGradient | None,
        chunk: int,
    ) -> Tensor:
        size, total = chunk or len(targets_M), torch.zeros(())
        dhidden_MC, dhead_VC = torch.empty_like(hidden_MC), None
        parts = zip(*(torch.split(x, size) for x in (hidden_MC, targets_M, dhidden_MC)), strict=True)
        for x_KC, targets_K, dx_KC in parts:
            d_KV = product(kernels, x_KC, head_VC, evenly=True)
            total += _losses(kernels, d_KV, targets_K, of=len(targets_M)).sum()
            dhead_VC = weight_gradient(kernels, d_KV, x_KC, added_to=dhead_VC)
            dx_KC.copy_(input_gradient(kernels, d_KV, head_VC))
            del d_KV
        ctx.save_for_backward(dhidden_MC, dhead_VC)
        ctx.table = table
        return total / len(targets_M)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        dhidden_MC, dhead_VC = ctx.saved_tensors
        if not _is_one(gradients[0]):
            dhidden_MC.mul_(gradients[0])
            dhead_VC.mul_(gradients[0])
        if ctx.table is None:
            return dhidden_MC, dhead_VC, None, None, None, None
        ctx.table.leave(dhead_VC)
        return dhidden_MC, None, None, None, None, None


def _is_one(gradient: Tensor) -> bool:
    """Whether a loss was not divided: a pass over a large head's gradient is saved then."""
    return float(gradient) == 1.0

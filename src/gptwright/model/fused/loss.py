"""The output head and the cross-entropy as one operation.

The logits are overwritten by their gradient, so that of the largest tensor of a step there is one copy, in 16
bits.

Shapes: C n_embd, M tokens of a batch, V vocabulary.
"""

from typing import Any

import torch
from torch import Tensor

from gptwright.kernels.library import Kernels
from gptwright.model.fused.recipe import NARROW
from gptwright.model.tied import TableGradient


def fused_loss(
    hidden_MC: Tensor, head_VC: Tensor, targets_M: Tensor, kernels: Kernels, table: TableGradient | None
) -> Tensor:
    """The mean cross-entropy in nats under a linear head.

    Args:
        hidden_MC: what the head is given, bfloat16.
        head_VC: the head, float32.
        targets_M: ids.
        kernels: what makes loss and gradient of the logits.
        table: takes the head's gradient, if its weight is the token embedding too; None hands it out.
    """
    mean: Tensor = _Loss.apply(hidden_MC, head_VC, targets_M, kernels, table)  # type: ignore[no-untyped-call]
    return mean


@torch.no_grad()
def fused_losses(hidden_MC: Tensor, head_VC: Tensor, targets_M: Tensor, kernels: Kernels) -> Tensor:
    """The cross-entropy of each of M tokens, without gradients."""
    logits_MV = hidden_MC @ head_VC.to(NARROW).t()
    return _losses(kernels, logits_MV, targets_M, gradient=False)


def _losses(kernels: Kernels, logits_MV: Tensor, targets_M: Tensor, *, gradient: bool) -> Tensor:
    """Losses `[M]`; with `gradient` that of their mean, in place of the logits."""
    losses_M = torch.empty(len(targets_M))
    kernels(
        "cross_entropy", logits_MV, targets_M, losses_M, *logits_MV.shape, int(gradient), 1 / len(losses_M)
    )
    return losses_M


class _Loss(torch.autograd.Function):
    @staticmethod
    def forward(  # noqa: PLR0917 - autograd passes all by position
        ctx: Any,
        hidden_MC: Tensor,
        head_VC: Tensor,
        targets_M: Tensor,
        kernels: Kernels,
        table: TableGradient | None,
    ) -> Tensor:
        narrow_VC = head_VC.to(NARROW)
        logits_MV = hidden_MC @ narrow_VC.t()
        losses_M = _losses(kernels, logits_MV, targets_M, gradient=True)
        ctx.save_for_backward(hidden_MC, narrow_VC, logits_MV)
        ctx.table = table
        return losses_M.mean()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        hidden_MC, narrow_VC, d_MV = ctx.saved_tensors
        share = gradients[0]
        dhidden_MC = (d_MV @ narrow_VC).mul_(share)
        dhead_VC = (d_MV.t() @ (hidden_MC * share)).float()
        if ctx.table is None:
            return dhidden_MC, dhead_VC, None, None, None
        ctx.table.leave(dhead_VC)
        return dhidden_MC, None, None, None, None

"""The end of a step, once its gradients are there: they are clipped, judged, and applied or refused.

Training (`loop`) and what a plan measures (`measure`) make it by this one function, so that what was measured
is what is trained.
"""

from typing import cast

import torch
from torch import Tensor, nn

from gptwright.optim.optimizers import Optimizer
from gptwright.train.guards import UpdateGuard, step_unless
from gptwright.train.world import World


def finish_step(
    model: nn.Module,
    optimizer: Optimizer,
    scaler: torch.amp.GradScaler,
    guard: UpdateGuard,
    *,
    step: int,
    loss: Tensor,
    grad_clip: float,
    world: World,
) -> tuple[Tensor, Tensor]:
    """Makes the update of a step unless it is refused, and drops the gradients.

    Args:
        model: has the gradients of all micro-batches, scaled.
        optimizer: over its parameters.
        scaler: that scaled them.
        guard: judges, and remembers.
        step: the update's number.
        loss: its mean loss in this process, a scalar on the device.
        grad_clip: the largest gradient norm; 0: any.
        world: the processes that make the same update.

    Returns:
        The mean loss over the processes and the gradient norm before clipping, both still on the device.
    """
    scaler.unscale_(cast("torch.optim.Optimizer", optimizer))
    grad_norm = clip_gradients(model, grad_clip)
    loss, grad_norm = world.mean(torch.stack((loss, grad_norm.to(loss.dtype)))).unbind()
    step_unless(optimizer, guard.judge(step, loss, grad_norm))
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
    return loss, grad_norm


def clip_gradients(model: nn.Module, largest: float) -> Tensor:
    """Scales gradients so that their norm over the whole model is at most `largest`; returns it before that.

    The norm of sharded gradients is that of all shards: their parts' squares are summed over the processes.
    torch multiplies by min(largest / (norm + 1e-6), 1) even where that is 1, because on a GPU the host would
    wait for the norm. A CPU has it at hand, and saves a pass over the gradients.

    Args:
        model: has gradients.
        largest: 0 scales nothing; the norm is still what tells a NaN or infinite gradient.
    """
    parameters = [p for p in model.parameters() if p.grad is not None]
    norm = torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
    whole = cast("Tensor", norm.full_tensor()) if hasattr(norm, "full_tensor") else norm
    if largest and not (_is_at_hand(whole) and float(whole) + 1e-6 <= largest):
        torch.nn.utils.clip_grads_with_norm_(parameters, largest, norm)
    return whole


def _is_at_hand(norm: Tensor) -> bool:
    """Whether the host can read a number without waiting for a device."""
    return norm.device.type == "cpu"

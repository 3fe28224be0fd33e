"""The norm of the residual stream as one operation, alone or behind a branch that is added first.

Shapes: B batch, T tokens, C n_embd, M = B · T.
"""

from typing import Any

import torch
from torch import Tensor

from gptwright.kernels.library import Kernels
from gptwright.model.fused.recipe import Recipe


def fused_norm(x_BTC: Tensor, weight: Tensor | None, bias: Tensor | None, recipe: Recipe) -> Tensor:
    """The norm before the output head, `[B, T, C]`, from float32 to the kernels' dtype."""
    y_BTC: Tensor = _Norm.apply(x_BTC, weight, bias, recipe)  # type: ignore[no-untyped-call]
    return y_BTC


def normed(
    x_MC: Tensor, branch_MC: Tensor | None, weight: Tensor | None, bias: Tensor | None, recipe: Recipe
) -> tuple[Tensor, Tensor, Tensor]:
    """The stream with the branch added, its norm, and the statistics of that."""
    sum_MC = x_MC if branch_MC is None else torch.empty_like(x_MC)
    y_MC = torch.empty_like(x_MC, dtype=recipe.kernels.dtype)
    statistics_2M = x_MC.new_empty(2, len(x_MC))
    recipe.kernels(
        "norm", x_MC, branch_MC, weight, bias, sum_MC, y_MC, statistics_2M, *x_MC.shape, recipe.norm_epsilon
    )
    return sum_MC, y_MC, statistics_2M


def norm_gradients(
    passed_MC: Tensor | None,
    dy_MC: Tensor,
    x_MC: Tensor,
    statistics_2M: Tensor,
    *,
    parameters: tuple[Tensor | None, Tensor | None],
    kernels: Kernels,
    branch: bool,
) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]:
    """Gradients of the stream, of a branch that was added to it, of weight and bias."""
    dx_MC = torch.empty_like(x_MC)
    dbranch_MC = torch.empty_like(x_MC, dtype=kernels.dtype) if branch else None
    dweight, dbias = (None if p is None else torch.empty_like(p) for p in parameters)
    room = x_MC.new_empty(torch.get_num_threads(), 2, x_MC.shape[1])
    kernels(
        "norm_back",
        passed_MC,
        dy_MC,
        x_MC,
        parameters[0],
        statistics_2M,
        dx_MC,
        dbranch_MC,
        dweight,
        dbias,
        room,
        *x_MC.shape,
    )
    return dx_MC, dbranch_MC, dweight, dbias


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x_BTC: Tensor, weight: Tensor | None, bias: Tensor | None, recipe: Recipe
    ) -> Tensor:
        x_MC = x_BTC.flatten(0, 1)
        _, y_MC, statistics = normed(x_MC, None, weight, bias, recipe)
        ctx.save_for_backward(x_MC, statistics, weight, bias)
        ctx.kernels = recipe.kernels
        return y_MC.view(x_BTC.shape)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x_MC, statistics, weight, bias = ctx.saved_tensors
        dx_MC, _, dweight, dbias = norm_gradients(
            None,
            gradients[0].flatten(0, 1).contiguous(),
            x_MC,
            statistics,
            parameters=(weight, bias),
            kernels=ctx.kernels,
            branch=False,
        )
        return dx_MC.view(gradients[0].shape), dweight, dbias, None

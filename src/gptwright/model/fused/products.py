"""A linear layer's products, by our own kernels where these are the quickest that the CPU has, else by torch.

Ours read the float32 weights, so that no bfloat16 copy of one is made or kept. Numbers that are multiplied,
and what comes of it, are in the kernels' dtype.

Shapes: M tokens of a batch; a layer has I inputs and O outputs.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from gptwright.kernels.library import Kernels


def product(
    kernels: Kernels,
    x_MI: Tensor,
    weight_OI: Tensor,
    bias_O: Tensor | None = None,
    *,
    evenly: bool = False,
) -> Tensor:
    """`[M, O]`.

    Args:
        kernels: those of this machine.
        x_MI: what is multiplied.
        weight_OI: float32.
        bias_O: float32.
        evenly: whether rows shall begin whole words apart, as `input_gradient` reads them.
    """
    (M, inputs), outputs, dtype = x_MI.shape, len(weight_OI), kernels.dtype
    if not (kernels.multiplies and inputs % kernels.word == 0):
        return F.linear(x_MI, weight_OI.to(dtype), None if bias_O is None else bias_O.to(dtype))
    y_MO = x_MI.new_empty(M, outputs + outputs % kernels.word if evenly else outputs)
    kernels("linear", x_MI, weight_OI, bias_O, y_MO, M, inputs, outputs, y_MO.stride(0))
    return y_MO[:, :outputs]


def input_gradient(kernels: Kernels, dy_MO: Tensor, weight_OI: Tensor) -> Tensor:
    """The gradient of what went into a product, `[M, I]`.

    Where rows of `dy_MO` do not follow each other, what lies between them is 0.
    """
    outputs, inputs = weight_OI.shape
    if not (kernels.multiplies and dy_MO.stride(0) % kernels.word == 0):
        return dy_MO @ weight_OI.to(kernels.dtype)
    dx_MI = dy_MO.new_empty(len(dy_MO), inputs)
    kernels("linear_input", dy_MO, weight_OI, dx_MI, len(dy_MO), inputs, outputs, dy_MO.stride(0))
    return dx_MI


def weight_gradient(
    kernels: Kernels, dy_MO: Tensor, x_MI: Tensor, *, added_to: Tensor | None = None
) -> Tensor:
    """The gradient of a weight, `[O, I]` in float32, or an earlier one that it is added to."""
    (M, inputs), outputs = x_MI.shape, dy_MO.shape[1]
    if not kernels.multiplies:
        made_OI = dy_MO.t() @ x_MI
        return made_OI.float() if added_to is None else added_to.add_(made_OI)
    dw_OI = torch.empty(outputs, inputs) if added_to is None else added_to
    adds = int(added_to is not None)
    kernels("linear_weight", dy_MO, x_MI, dw_OI, M, inputs, outputs, dy_MO.stride(0), adds)
    return dw_OI


def bias_gradient(kernels: Kernels, dy_MO: Tensor, bias_O: Tensor | None) -> Tensor | None:
    """The gradient of a bias, `[O]` in float32, if there is one; `dy_MO` is contiguous."""
    if bias_O is None:
        return None
    dbias_O = torch.empty_like(bias_O)
    kernels("sum_rows", dy_MO, dbias_O, *dy_MO.shape)
    return dbias_O

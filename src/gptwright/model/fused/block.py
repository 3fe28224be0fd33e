"""A block as one operation: attention, then the MLP, each on a normalized copy and added back.

Its backward pass is written out, with hardly more than one pass over memory between two products.

Shapes: B batch, T tokens, C n_embd, M = B · T, F = 4 · C, P = 3 · C; a linear layer has I inputs, O outputs.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gptwright.model.fused.attention import Attention
from gptwright.model.fused.norm import norm_gradients, normed
from gptwright.model.fused.recipe import NARROW, Drops, Recipe


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockWeights:
    """A block's parameters; an RMS norm has none, and a bias may be None."""

    norm_1: Tensor | None
    norm_1_bias: Tensor | None
    attn: Tensor
    attn_bias: Tensor | None
    attn_proj: Tensor
    attn_proj_bias: Tensor | None
    norm_2: Tensor | None
    norm_2_bias: Tensor | None
    fc: Tensor
    fc_bias: Tensor | None
    fc_proj: Tensor
    fc_proj_bias: Tensor | None

    def in_order(self) -> tuple[Tensor | None, ...]:
        """As `_Block` takes them."""
        return tuple(getattr(self, name) for name in self.__slots__)


def fused_block(x_BTC: Tensor, weights: BlockWeights, recipe: Recipe) -> Tensor:
    """Attention, then the MLP, each on a normalized copy and added back, `[B, T, C]` in float32."""
    y_BTC: Tensor = _Block.apply(x_BTC, recipe, *weights.in_order())  # type: ignore[no-untyped-call]
    return y_BTC


def fused_drop(x_BTC: Tensor, recipe: Recipe) -> Tensor:
    """Dropout of the residual stream, before the first block."""
    drops = recipe.drops()
    if drops is None:
        return x_BTC
    y_BTC: Tensor = _Drop.apply(x_BTC, drops)  # type: ignore[no-untyped-call]
    return y_BTC


class _Block(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_BTC: Tensor, recipe: Recipe, *parameters: Tensor | None) -> Tensor:
        B, T, C = x_BTC.shape
        norm_1, norm_1_b, attn, attn_b, proj, proj_b, norm_2, norm_2_b, fc, fc_b, fc_proj, fc_proj_b = (
            parameters
        )
        narrow = [weight.to(NARROW) for weight in (attn, proj, fc, fc_proj) if weight is not None]
        x_MC, attention = x_BTC.reshape(B * T, C), Attention(recipe, (B, T, C))
        after_attention, after_mlp = recipe.drops(), recipe.drops()
        _, h_MC, statistics_1 = normed(x_MC, None, norm_1, norm_1_b, recipe)
        gathered_MC, kept = attention(_product(h_MC, narrow[0], attn_b))
        branch_MC = _product(gathered_MC, narrow[1], proj_b)
        if after_attention is not None:
            after_attention(branch_MC)
        middle_MC, h2_MC, statistics_2 = normed(x_MC, branch_MC, norm_2, norm_2_b, recipe)
        # What goes into the activation, and then its slope there.
        slope_MF = _product(h2_MC, narrow[2], fc_b)
        after_MF = torch.empty_like(slope_MF)
        recipe.kernels("relu2" if recipe.relu2 else "gelu", slope_MF, after_MF, slope_MF.numel())
        branch_MC = _product(after_MF, narrow[3], fc_proj_b)
        if after_mlp is not None:
            after_mlp(branch_MC)
        y_BTC = torch.empty_like(x_BTC)
        recipe.kernels("add", middle_MC, branch_MC, y_BTC, y_BTC.numel())
        ctx.recipe, ctx.attention, ctx.drops = recipe, attention, (after_attention, after_mlp)
        ctx.save_for_backward(
            *narrow,
            x_MC,
            statistics_1,
            h_MC,
            gathered_MC,
            middle_MC,
            statistics_2,
            h2_MC,
            slope_MF,
            after_MF,
            *parameters,
            *kept,
        )
        return y_BTC

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        attn, proj, fc, fc_proj, x_MC, statistics_1, h_MC, gathered_MC, *rest = ctx.saved_tensors
        middle_MC, statistics_2, h2_MC, slope_MF, after_MF, *rest = rest
        norm_1, norm_1_b, _, attn_b, _, proj_b, norm_2, norm_2_b, _, fc_b, _, fc_proj_b, *kept = rest
        kernels, g_BTC = ctx.recipe.kernels, gradients[0].contiguous()
        g_MC = g_BTC.view(x_MC.shape)
        after_attention, after_mlp = ctx.drops
        dmlp_MC = g_MC.to(NARROW)
        if after_mlp is not None:
            after_mlp(dmlp_MC)
        d_MF, dfc_proj, dfc_proj_b = _product_gradients(dmlp_MC, after_MF, fc_proj, fc_proj_b)
        kernels("scale", slope_MF, d_MF, d_MF.numel())
        dh_MC, dfc, dfc_b = _product_gradients(d_MF, h2_MC, fc, fc_b)
        dmiddle_MC, dattention_MC, dnorm_2, dnorm_2_b = norm_gradients(
            g_MC, dh_MC, middle_MC, statistics_2, parameters=(norm_2, norm_2_b), kernels=kernels, branch=True
        )
        assert dattention_MC is not None
        if after_attention is not None:
            after_attention(dattention_MC)
        d_MC, dproj, dproj_b = _product_gradients(dattention_MC, gathered_MC, proj, proj_b)
        d_MP = ctx.attention.back(d_MC, kept)
        dh_MC, dattn, dattn_b = _product_gradients(d_MP, h_MC, attn, attn_b)
        dx_MC, _, dnorm_1, dnorm_1_b = norm_gradients(
            dmiddle_MC,
            dh_MC,
            x_MC,
            statistics_1,
            parameters=(norm_1, norm_1_b),
            kernels=kernels,
            branch=False,
        )
        of_parameters = (
            dnorm_1,
            dnorm_1_b,
            dattn,
            dattn_b,
            dproj,
            dproj_b,
            dnorm_2,
            dnorm_2_b,
            dfc,
            dfc_b,
            dfc_proj,
            dfc_proj_b,
        )
        return dx_MC.view(g_BTC.shape), None, *of_parameters


class _Drop(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, drops: Drops) -> Tensor:
        ctx.drops = drops
        return drops(x.contiguous(), into=torch.empty_like(x, memory_format=torch.contiguous_format))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        g = gradients[0].contiguous()
        return ctx.drops(g, into=torch.empty_like(g)), None


def _product(x_MI: Tensor, weight_OI: Tensor, bias_O: Tensor | None) -> Tensor:
    """A linear layer of narrow tensors."""
    return torch.nn.functional.linear(x_MI, weight_OI, None if bias_O is None else bias_O.to(NARROW))


def _product_gradients(
    dy_MO: Tensor, x_MI: Tensor, weight_OI: Tensor, bias_O: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Gradients of a linear layer's input, weight and bias; those of parameters in float32."""
    dbias_O = None if bias_O is None else dy_MO.sum(dim=0, dtype=torch.float32)
    return dy_MO @ weight_OI, (dy_MO.t() @ x_MI).float(), dbias_O

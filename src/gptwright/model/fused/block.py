"""A block as one operation: attention, then the MLP, each on a normalized copy and added back.

Its backward pass is written out, with hardly more than one pass over memory between two products. Of each
norm and of the activation only what goes in is kept: what comes out costs less to make again than to keep.

Shapes: B batch, T tokens, C n_embd, M = B · T, F = 4 · C, P = 3 · C; a linear layer has I inputs, O outputs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gptwright.model.fused.attention import Attention
from gptwright.model.fused.norm import norm_gradients, normed
from gptwright.model.fused.products import bias_gradient, input_gradient, product, weight_gradient
from gptwright.model.fused.recipe import Drops, Recipe


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

    @classmethod
    def of(cls, parameters: Sequence[Any]) -> "BlockWeights":
        """From the order in which autograd has them."""
        return cls(**dict(zip(cls.__slots__, parameters, strict=True)))

    def in_order(self) -> tuple[Tensor | None, ...]:
        """As autograd takes them, or their gradients."""
        return tuple(getattr(self, name) for name in self.__slots__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    """What the way back needs beside the parameters.

    Attributes:
        x: what came in, `[M, C]` in float32.
        qkv: queries, keys and values, `[M, 3C]`.
        gathered: by the heads, `[M, C]`.
        logarithms: of the softmax's sums, `[N, T]` in float32.
        middle: the stream between attention and MLP, `[M, C]` in float32.
        before: what the activation was given, `[M, F]`.
    """

    x: Tensor
    qkv: Tensor
    gathered: Tensor
    logarithms: Tensor
    middle: Tensor
    before: Tensor


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
        of, kernels = BlockWeights.of(parameters), recipe.kernels
        B, T, C = x_BTC.shape
        x_MC, attention = x_BTC.reshape(B * T, C), Attention(recipe, (B, T, C))
        after_attention, after_mlp = recipe.drops(), recipe.drops()
        _, h_MC, _ = normed(x_MC, None, of.norm_1, of.norm_1_bias, recipe)
        qkv_MP = product(kernels, h_MC, of.attn, of.attn_bias)
        gathered_MC, logarithms_NT = attention(qkv_MP)
        branch_MC = product(kernels, gathered_MC, of.attn_proj, of.attn_proj_bias)
        if after_attention is not None:
            after_attention(branch_MC)
        middle_MC, h_MC, _ = normed(x_MC, branch_MC, of.norm_2, of.norm_2_bias, recipe)
        before_MF = product(kernels, h_MC, of.fc, of.fc_bias)
        after_MF = torch.empty_like(before_MF)
        kernels(recipe.activation, before_MF, after_MF, after_MF.numel())
        branch_MC = product(kernels, after_MF, of.fc_proj, of.fc_proj_bias)
        if after_mlp is not None:
            after_mlp(branch_MC)
        y_BTC = torch.empty_like(x_BTC)
        kernels("add", middle_MC, branch_MC, y_BTC, y_BTC.numel())
        ctx.attention, ctx.drops = attention, (after_attention, after_mlp)
        ctx.save_for_backward(x_MC, qkv_MP, gathered_MC, logarithms_NT, middle_MC, before_MF, *parameters)
        return y_BTC

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x_MC, qkv_MP, gathered_MC, logarithms_NT, middle_MC, before_MF, *parameters = ctx.saved_tensors
        kept = _Kept(
            x=x_MC,
            qkv=qkv_MP,
            gathered=gathered_MC,
            logarithms=logarithms_NT,
            middle=middle_MC,
            before=before_MF,
        )
        of, g_BTC = BlockWeights.of(parameters), gradients[0].contiguous()
        after_attention, after_mlp = ctx.drops
        g_MC = g_BTC.view(kept.x.shape)
        dmiddle_MC, dbranch_MC, of_mlp = _mlp_back(ctx.attention.recipe, of, kept, g_MC, after_mlp)
        if after_attention is not None:
            after_attention(dbranch_MC)
        dx_MC, of_attention = _attention_back(ctx.attention, of, kept, dmiddle_MC, dbranch_MC)
        return dx_MC.view(g_BTC.shape), None, *BlockWeights(**of_mlp, **of_attention).in_order()


def _mlp_back(
    recipe: Recipe, of: BlockWeights, kept: _Kept, g_MC: Tensor, drops: Drops | None
) -> tuple[Tensor, Tensor, dict[str, Any]]:
    """Gradients of the stream before the MLP, of the branch that was added to make it, of parameters."""
    kernels = recipe.kernels
    dbranch_MC = g_MC.to(kernels.dtype, copy=drops is not None)
    if drops is not None:
        drops(dbranch_MC)
    d_MF, after_MF = input_gradient(kernels, dbranch_MC, of.fc_proj), torch.empty_like(kept.before)
    kernels(f"{recipe.activation}_back", kept.before, d_MF, after_MF, after_MF.numel())
    dfc_proj = weight_gradient(kernels, dbranch_MC, after_MF)
    dfc_proj_bias = bias_gradient(kernels, dbranch_MC, of.fc_proj_bias)
    del after_MF, dbranch_MC
    _, h_MC, statistics = normed(kept.middle, None, of.norm_2, of.norm_2_bias, recipe)
    dfc, dfc_bias = weight_gradient(kernels, d_MF, h_MC), bias_gradient(kernels, d_MF, of.fc_bias)
    dh_MC, parameters = input_gradient(kernels, d_MF, of.fc), (of.norm_2, of.norm_2_bias)
    del d_MF, h_MC
    dmiddle_MC, dadded_MC, dnorm, dnorm_bias = norm_gradients(
        g_MC, dh_MC, kept.middle, statistics, parameters=parameters, kernels=kernels, branch=True
    )
    assert dadded_MC is not None
    of_parameters = {
        "norm_2": dnorm,
        "norm_2_bias": dnorm_bias,
        "fc": dfc,
        "fc_bias": dfc_bias,
        "fc_proj": dfc_proj,
        "fc_proj_bias": dfc_proj_bias,
    }
    return dmiddle_MC, dadded_MC, of_parameters


def _attention_back(
    attention: Attention, of: BlockWeights, kept: _Kept, passed_MC: Tensor, dbranch_MC: Tensor
) -> tuple[Tensor, dict[str, Any]]:
    """Gradients of the stream before attention, besides which `passed_MC` reaches it, and of parameters."""
    recipe, kernels = attention.recipe, attention.recipe.kernels
    dproj = weight_gradient(kernels, dbranch_MC, kept.gathered)
    dproj_bias = bias_gradient(kernels, dbranch_MC, of.attn_proj_bias)
    dy_MC = input_gradient(kernels, dbranch_MC, of.attn_proj)
    d_MP = attention.back(dy_MC, kept.qkv, kept.gathered, kept.logarithms)
    del dy_MC
    _, h_MC, statistics = normed(kept.x, None, of.norm_1, of.norm_1_bias, recipe)
    dattn, dattn_bias = weight_gradient(kernels, d_MP, h_MC), bias_gradient(kernels, d_MP, of.attn_bias)
    dh_MC, parameters = input_gradient(kernels, d_MP, of.attn), (of.norm_1, of.norm_1_bias)
    del d_MP, h_MC
    dx_MC, _, dnorm, dnorm_bias = norm_gradients(
        passed_MC, dh_MC, kept.x, statistics, parameters=parameters, kernels=kernels, branch=False
    )
    of_parameters = {
        "norm_1": dnorm,
        "norm_1_bias": dnorm_bias,
        "attn": dattn,
        "attn_bias": dattn_bias,
        "attn_proj": dproj,
        "attn_proj_bias": dproj_bias,
    }
    return dx_MC, of_parameters


class _Drop(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, drops: Drops) -> Tensor:
        ctx.drops = drops
        return drops(x.contiguous(), into=torch.empty_like(x, memory_format=torch.contiguous_format))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        g = gradients[0].contiguous()
        return ctx.drops(g, into=torch.empty_like(g)), None

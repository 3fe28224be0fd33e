"""A block, and the output head with the loss, as one operation each: a step on a CPU in bfloat16.

Between two products autograd would start a dozen small operations, each with a cast before and after it. Here
each block is a single node with its backward pass written out: products by torch, everything between them by
`gptwright.kernels`. What is computed is what autocast would compute: the residual stream, norms' statistics
and weights' gradients in float32 and everything that is multiplied in bfloat16. Scores of attention are
rounded to bfloat16 before their softmax, which is taken in float32.

Attention takes a block of queries at a time and leaves out the keys that none of them sees. The head's logits
are overwritten by their gradient, so of the largest tensor of a step there is one copy, in 16 bits.

Shapes: B batch, T tokens, C n_embd, H heads, D = C / H, N = B · H, M = B · T, F = 4 · C, V vocabulary;
Q queries of a block, S keys that the last of them sees; P = C times the parts of a product's output.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gptwright.arithmetic.step import query_blocks
from gptwright.kernels.library import Kernels
from gptwright.model.tied import TableGradient

NARROW = torch.bfloat16


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What a block is made of beside its parameters.

    Attributes:
        kernels: what works between the products.
        n_head: H.
        queries: of a block of attention.
        relu2: squared ReLU instead of GELU.
        norm_epsilon: under the root of norms over channels.
        qk_epsilon: under that of queries and keys; None does not normalize them.
        rotary: factors `[T, D]` by which each channel and its partner are turned; None does not turn.
    """

    kernels: Kernels
    n_head: int
    queries: int
    relu2: bool
    norm_epsilon: float
    qk_epsilon: float | None
    rotary: tuple[Tensor, Tensor] | None


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


def fused_norm(x_BTC: Tensor, weight: Tensor | None, bias: Tensor | None, recipe: Recipe) -> Tensor:
    """The norm before the output head, `[B, T, C]` float32 to bfloat16."""
    y_BTC: Tensor = _Norm.apply(x_BTC, weight, bias, recipe)  # type: ignore[no-untyped-call]
    return y_BTC


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


def _normed(
    x_MC: Tensor, branch_MC: Tensor | None, weight: Tensor | None, bias: Tensor | None, recipe: Recipe
) -> tuple[Tensor, Tensor, Tensor]:
    """The stream with the branch added, its norm, and the statistics of that."""
    sum_MC = x_MC if branch_MC is None else torch.empty_like(x_MC)
    y_MC, statistics_2M = torch.empty_like(x_MC, dtype=NARROW), x_MC.new_empty(2, len(x_MC))
    recipe.kernels(
        "norm", x_MC, branch_MC, weight, bias, sum_MC, y_MC, statistics_2M, *x_MC.shape, recipe.norm_epsilon
    )
    return sum_MC, y_MC, statistics_2M


def _norm_gradients(
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
    dbranch_MC = torch.empty_like(x_MC, dtype=NARROW) if branch else None
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


def _product(x_MI: Tensor, weight_OI: Tensor, bias_O: Tensor | None) -> Tensor:
    """A linear layer of narrow tensors."""
    return torch.nn.functional.linear(x_MI, weight_OI, None if bias_O is None else bias_O.to(NARROW))


def _product_gradients(
    dy_MO: Tensor, x_MI: Tensor, weight_OI: Tensor, bias_O: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Gradients of a linear layer's input, weight and bias; those of parameters in float32."""
    dbias_O = None if bias_O is None else dy_MO.sum(dim=0, dtype=torch.float32)
    return dy_MO @ weight_OI, (dy_MO.t() @ x_MI).float(), dbias_O


def _put_product(to: Tensor, a: Tensor, b: Tensor) -> None:
    """A batch of products, put where it belongs."""
    if to.is_contiguous():
        torch.bmm(a, b, out=to)
    else:
        to.copy_(torch.bmm(a, b))


@dataclass(frozen=True, slots=True)
class _Attention:
    """Causal attention over `[M, 3C]` of B sequences, and its way back."""

    recipe: Recipe
    batch: int
    tokens: int
    channels: int

    @property
    def _places(self) -> tuple[int, int, int, int]:
        """B, T, H and D."""
        n_head = self.recipe.n_head
        return self.batch, self.tokens, n_head, self.channels // n_head

    def _blocks(self) -> list[tuple[slice, slice]]:
        """The queries of each block, and the keys that they see between them."""
        blocks = query_blocks(self.tokens, self.recipe.queries)
        return [(slice(begin, end), slice(end)) for begin, end in blocks]

    def _split(self, x_MP: Tensor, parts: int, turned: int = 0) -> tuple[Tensor, Tensor | None]:
        """Heads `[parts, N, T, D]`, and by what the first ones were scaled."""
        B, T, H, D = self._places
        heads_PNTD = x_MP.new_empty(parts, B * H, T, D)
        norms = bool(turned) and self.recipe.qk_epsilon is not None
        inverse = torch.empty(turned, B * H, T) if norms else None
        own, others = self.recipe.rotary or (None, None)
        epsilon = self.recipe.qk_epsilon or 0.0
        self.recipe.kernels(
            "split_heads", x_MP, heads_PNTD, own, others, inverse, epsilon, turned, B, T, parts, H, D
        )
        return heads_PNTD, inverse

    def _merge(
        self, heads_PNTD: Tensor, made_PNTD: Tensor, inverse: Tensor | None = None, turned: int = 0
    ) -> Tensor:
        """`[M, parts · C]` of heads, on their way back through what was done to the first ones."""
        B, T, H, D = self._places
        parts = len(heads_PNTD)
        x_MP = heads_PNTD.new_empty(B * T, parts * H * D)
        own, others = self.recipe.rotary or (None, None)
        self.recipe.kernels(
            "merge_heads", heads_PNTD, x_MP, made_PNTD, own, others, inverse, turned, B, T, parts, H, D
        )
        return x_MP

    @property
    def _turned(self) -> int:
        """How many of query, key and value are normalized or turned."""
        return 2 if self.recipe.rotary is not None or self.recipe.qk_epsilon is not None else 0

    def __call__(self, qkv_MP: Tensor) -> tuple[Tensor, list[Tensor | None]]:
        """What the heads gather, `[M, C]`, and what the way back needs: heads, scales, probabilities."""
        heads_3NTD, inverse = self._split(qkv_MP, 3, self._turned)
        q_NTD, k_NTD, v_NTD = heads_3NTD.unbind()
        y_NTD, saved = torch.empty_like(q_NTD), []
        for queries, keys in self._blocks():
            p_NQS = torch.bmm(q_NTD[:, queries], k_NTD[:, keys].transpose(1, 2))
            self.recipe.kernels("softmax", p_NQS, *p_NQS.shape, queries.start, self._scale)
            _put_product(y_NTD[:, queries], p_NQS, v_NTD[:, keys])
            saved.append(p_NQS)
        return self._merge(y_NTD[None], y_NTD), [heads_3NTD, inverse, *saved]

    @property
    def _scale(self) -> float:
        return 1 / math.sqrt(self.channels // self.recipe.n_head)

    def back(self, dy_MC: Tensor, saved: list[Tensor | None]) -> Tensor:
        """The gradient of `[M, 3C]`."""
        heads_3NTD, inverse, *probabilities = saved
        assert heads_3NTD is not None
        q_NTD, k_NTD, v_NTD = heads_3NTD.unbind()
        dy_NTD = self._split(dy_MC, 1)[0][0]
        d_3NTD = torch.empty_like(heads_3NTD)
        blocks = self._blocks()
        sums = torch.zeros(d_3NTD[1:].shape) if len(blocks) > 1 else None
        for (queries, keys), p_NQS in zip(blocks, probabilities, strict=True):
            assert p_NQS is not None
            dy_NQD = dy_NTD[:, queries]
            ds_NQS = torch.bmm(dy_NQD, v_NTD[:, keys].transpose(1, 2))
            self.recipe.kernels("softmax_back", p_NQS, ds_NQS, *p_NQS.shape, queries.start, self._scale)
            _put_product(d_3NTD[0, :, queries], ds_NQS, k_NTD[:, keys])
            if sums is None:
                _put_product(d_3NTD[1], ds_NQS.transpose(1, 2), q_NTD)
                _put_product(d_3NTD[2], p_NQS.transpose(1, 2), dy_NTD)
            else:
                sums[0, :, keys] += torch.bmm(ds_NQS.transpose(1, 2), q_NTD[:, queries])
                sums[1, :, keys] += torch.bmm(p_NQS.transpose(1, 2), dy_NQD)
        if sums is not None:
            d_3NTD[1:] = sums
        return self._merge(d_3NTD, heads_3NTD, inverse, self._turned)


class _Block(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_BTC: Tensor, recipe: Recipe, *parameters: Tensor | None) -> Tensor:
        B, T, C = x_BTC.shape
        norm_1, norm_1_b, attn, attn_b, proj, proj_b, norm_2, norm_2_b, fc, fc_b, fc_proj, fc_proj_b = (
            parameters
        )
        narrow = [weight.to(NARROW) for weight in (attn, proj, fc, fc_proj) if weight is not None]
        x_MC, attention = x_BTC.reshape(B * T, C), _Attention(recipe, B, T, C)
        _, h_MC, statistics_1 = _normed(x_MC, None, norm_1, norm_1_b, recipe)
        gathered_MC, kept = attention(_product(h_MC, narrow[0], attn_b))
        branch_MC = _product(gathered_MC, narrow[1], proj_b)
        middle_MC, h2_MC, statistics_2 = _normed(x_MC, branch_MC, norm_2, norm_2_b, recipe)
        # What goes into the activation, and then its slope there.
        slope_MF = _product(h2_MC, narrow[2], fc_b)
        after_MF = torch.empty_like(slope_MF)
        recipe.kernels("relu2" if recipe.relu2 else "gelu", slope_MF, after_MF, slope_MF.numel())
        branch_MC = _product(after_MF, narrow[3], fc_proj_b)
        y_BTC = torch.empty_like(x_BTC)
        recipe.kernels("add", middle_MC, branch_MC, y_BTC, y_BTC.numel())
        ctx.recipe, ctx.attention = recipe, attention
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
        d_MF, dfc_proj, dfc_proj_b = _product_gradients(g_MC.to(NARROW), after_MF, fc_proj, fc_proj_b)
        kernels("scale", slope_MF, d_MF, d_MF.numel())
        dh_MC, dfc, dfc_b = _product_gradients(d_MF, h2_MC, fc, fc_b)
        dmiddle_MC, dbranch_MC, dnorm_2, dnorm_2_b = _norm_gradients(
            g_MC, dh_MC, middle_MC, statistics_2, parameters=(norm_2, norm_2_b), kernels=kernels, branch=True
        )
        assert dbranch_MC is not None
        d_MC, dproj, dproj_b = _product_gradients(dbranch_MC, gathered_MC, proj, proj_b)
        d_MP = ctx.attention.back(d_MC, kept)
        dh_MC, dattn, dattn_b = _product_gradients(d_MP, h_MC, attn, attn_b)
        dx_MC, _, dnorm_1, dnorm_1_b = _norm_gradients(
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


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x_BTC: Tensor, weight: Tensor | None, bias: Tensor | None, recipe: Recipe
    ) -> Tensor:
        x_MC = x_BTC.flatten(0, 1)
        _, y_MC, statistics = _normed(x_MC, None, weight, bias, recipe)
        ctx.save_for_backward(x_MC, statistics, weight, bias)
        ctx.kernels = recipe.kernels
        return y_MC.view(x_BTC.shape)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x_MC, statistics, weight, bias = ctx.saved_tensors
        dx_MC, _, dweight, dbias = _norm_gradients(
            None,
            gradients[0].flatten(0, 1).contiguous(),
            x_MC,
            statistics,
            parameters=(weight, bias),
            kernels=ctx.kernels,
            branch=False,
        )
        return dx_MC.view(gradients[0].shape), dweight, dbias, None


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

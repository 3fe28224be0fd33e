"""Dropout on a CPU, where torch's own draws take longer than the arithmetic around them.

torch draws each element's fate from its serial generator as a float, and with dropout its attention on a CPU
computes all T × T scores and drops from all of them. Here four elements share one draw of 64 bits, what is
kept is a byte an element, and attention leaves out the blocks of keys that no query of theirs may see.

A fate takes 16 bits, so a probability is rounded to the next of 65,536ths (by 0.000008 at most), and what
stays is scaled by exactly that one's inverse: the expectation is that of no dropout. The draws are those of
torch's generator, so a seed gives the same fates again.

On other devices, under autocast and in a compiled graph torch's own functions do the work. What it gains is
in docs/lab-notes.md.

Shapes: N = B · H, T tokens, D size of a head; R queries of a block, S keys that the last of them sees.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn

from gptwright.arithmetic.step import DROPPED_ROWS, query_blocks

FATES = 2**16


class Dropout(nn.Dropout):
    """`nn.Dropout` with cheaper draws on a CPU."""

    def forward(self, x: Tensor) -> Tensor:
        """Any shape to the same; in evaluation nothing happens."""
        if self.training and self.p and draws_here(x):
            dropped: Tensor = _Drop.apply(x, self.p)  # type: ignore[no-untyped-call]
            return dropped
        return super().forward(x)


def draws_here(x: Tensor) -> bool:
    """Whether this module's functions, and not torch's, drop from a tensor."""
    return (
        x.device.type == "cpu"
        and x.dtype == torch.float32
        and not torch.compiler.is_compiling()
        and not torch.is_autocast_enabled("cpu")
    )


def dropped_attention(q_BHTD: Tensor, k_BHTD: Tensor, v_BHTD: Tensor, p: float) -> Tensor:
    """Causal attention whose probabilities are dropped with probability `p`, `[B, H, T, D]`."""
    parts = (part.flatten(0, 1) for part in (q_BHTD, k_BHTD, v_BHTD))
    y_NTD: Tensor = _DroppedAttention.apply(*parts, p)  # type: ignore[no-untyped-call]
    return y_NTD.view(q_BHTD.shape)


def _kept(shape: torch.Size, p: float) -> tuple[Tensor, float]:
    """Which elements stay, a bool each, and the factor that makes up for the others."""
    dropped = min(round(p * FATES), FATES - 1)
    words = torch.empty(math.ceil(shape.numel() / 4), dtype=torch.int64)
    fates = words.random_(-(2**63), None).view(torch.int16)[: shape.numel()].view(shape)
    return fates >= dropped - FATES // 2, FATES / (FATES - dropped)


class _Drop(torch.autograd.Function):
    """x · kept / (1 - p), and the same for its gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float) -> Tensor:
        """Drops from any shape."""
        kept, ctx.factor = _kept(x.shape, p)
        ctx.save_for_backward(kept)
        return (x * kept).mul_(ctx.factor)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """The gradient of the input."""
        (kept,) = ctx.saved_tensors
        return (gradients[0] * kept).mul_(ctx.factor), None


class _DroppedAttention(torch.autograd.Function):
    """softmax(q kᵀ / √D) · kept / (1 - p) v under a causal mask, a block of queries at a time.

    Kept for the backward pass: what it is given, and of each block the probabilities and a byte for each.
    """

    @staticmethod
    def forward(ctx: Any, q_NTD: Tensor, k_NTD: Tensor, v_NTD: Tensor, p: float) -> Tensor:
        """`[N, T, D]` each."""
        y_NTD, saved = torch.empty_like(q_NTD), []
        ctx.scale = 1 / math.sqrt(q_NTD.shape[-1])
        for rows, keys in _blocks(q_NTD.shape[1]):
            q_NRD = q_NTD[:, rows] * ctx.scale
            scores_NRS = torch.bmm(q_NRD, k_NTD[:, keys].transpose(1, 2))
            scores_NRS[:, :, rows] += _unseen(rows.stop - rows.start)
            p_NRS = scores_NRS.softmax(dim=-1)
            kept_NRS, ctx.factor = _kept(p_NRS.shape, p)
            y_NTD[:, rows] = torch.bmm(p_NRS * kept_NRS, v_NTD[:, keys]).mul_(ctx.factor)
            saved += [p_NRS, kept_NRS]
        ctx.save_for_backward(q_NTD, k_NTD, v_NTD, *saved)
        return y_NTD

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of queries, keys and values."""
        q_NTD, k_NTD, v_NTD, *saved = ctx.saved_tensors
        dq_NTD, dk_NTD, dv_NTD = torch.empty_like(q_NTD), torch.zeros_like(k_NTD), torch.zeros_like(v_NTD)
        blocks = zip(_blocks(q_NTD.shape[1]), saved[::2], saved[1::2], strict=True)
        for (rows, keys), p_NRS, kept_NRS in blocks:
            dy_NRD = gradients[0][:, rows] * ctx.factor
            dv_NTD[:, keys].baddbmm_((p_NRS * kept_NRS).transpose(1, 2), dy_NRD)
            ds_NRS = torch.bmm(dy_NRD, v_NTD[:, keys].transpose(1, 2)).mul_(kept_NRS).mul_(p_NRS)
            ds_NRS.addcmul_(p_NRS, ds_NRS.sum(dim=-1, keepdim=True), value=-1)
            torch.bmm(ds_NRS, k_NTD[:, keys], out=dq_NTD[:, rows])
            dk_NTD[:, keys].baddbmm_(ds_NRS.transpose(1, 2), q_NTD[:, rows], alpha=ctx.scale)
        return dq_NTD.mul_(ctx.scale), dk_NTD, dv_NTD, None


def _blocks(tokens: int) -> list[tuple[slice, slice]]:
    """The queries of each block, and the keys that they see between them."""
    return [(slice(begin, end), slice(end)) for begin, end in query_blocks(tokens, DROPPED_ROWS)]


def _unseen(rows: int) -> Tensor:
    """`[R, R]`: minus infinity where a key comes after its query, else 0."""
    return torch.full((rows, rows), -math.inf).triu_(1)

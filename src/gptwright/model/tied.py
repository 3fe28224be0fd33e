"""One gradient for a table that is token embedding and output head at once.

Autograd has each use hand out a gradient of the whole table and adds the two: at GPT-2's size 154 MB more at
the moment when all other gradients are there, and two passes over them. An embedding has something to say
about the rows of its tokens alone. So the head, whose backward pass comes first, leaves its gradient here,
and the embedding adds those rows to it and hands it out as the table's.

Shapes: B batch, T tokens, C n_embd, V vocab_size.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F


class TableGradient:
    """A tied table's gradient on its way from the output head to the embedding of the same forward pass."""

    def __init__(self) -> None:
        self._made: Tensor | None = None

    def leave(self, gradient_VC: Tensor) -> None:
        """Keeps the head's gradient, which is changed in place later."""
        self._made = gradient_VC

    def take(self) -> Tensor:
        """The head's gradient; it is kept no longer."""
        gradient_VC, self._made = self._made, None
        assert gradient_VC is not None, "an embedding's backward pass follows its head's"
        return gradient_VC


def embed(weight_VC: Tensor, tokens_BT: Tensor, table: TableGradient) -> Tensor:
    """The rows of tokens as `[B, T, C]`; their gradient is added to what the head leaves in `table`."""
    rows_BTC: Tensor = _Embed.apply(weight_VC, tokens_BT, table)  # type: ignore[no-untyped-call]
    return rows_BTC


class _Embed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight_VC: Tensor, tokens_BT: Tensor, table: TableGradient) -> Tensor:
        ctx.save_for_backward(tokens_BT)
        ctx.table = table
        return F.embedding(tokens_BT, weight_VC)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (tokens_BT,) = ctx.saved_tensors
        gradient_VC = ctx.table.take()
        gradient_VC.index_add_(0, tokens_BT.flatten(), gradients[0].flatten(0, -2).to(gradient_VC.dtype))
        return gradient_VC, None, None

"""Causal attention in bfloat16 with its backward pass, a block of queries at a time.

Keys that no query of a block sees are left out. Probabilities are kept for the way back; what dropout took of
them is not, because it can be drawn again.

Shapes: B batch, T tokens, C n_embd, H heads, D = C / H, N = B · H, M = B · T; Q queries of a block, S keys
that the last of them sees; P = C times the parts of a product's output.
"""

import math

import torch
from torch import Tensor

from gptwright.arithmetic.step import query_blocks
from gptwright.model.fused.recipe import Drops, Recipe


class Attention:
    """Causal attention over `[M, 3C]` of B sequences, and its way back.

    Args:
        recipe: heads, blocks of queries, what is done to queries and keys, dropout.
        shape: B, T and C.
    """

    def __init__(self, recipe: Recipe, shape: tuple[int, int, int]) -> None:
        self.recipe = recipe
        self.batch, self.tokens, self.channels = shape
        self.drops = [recipe.drops() for _ in self._blocks()]

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
        for (queries, keys), drops in zip(self._blocks(), self.drops, strict=True):
            p_NQS = torch.bmm(q_NTD[:, queries], k_NTD[:, keys].transpose(1, 2))
            self.recipe.kernels("softmax", p_NQS, *p_NQS.shape, queries.start, self._scale)
            _put_product(y_NTD[:, queries], _dropped(p_NQS, drops), v_NTD[:, keys])
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
        for (queries, keys), p_NQS, drops in zip(blocks, probabilities, self.drops, strict=True):
            assert p_NQS is not None
            dy_NQD, given_NQS = dy_NTD[:, queries], _dropped(p_NQS, drops)
            ds_NQS = torch.bmm(dy_NQD, v_NTD[:, keys].transpose(1, 2))
            if drops is not None:
                drops(ds_NQS)
            self.recipe.kernels("softmax_back", p_NQS, ds_NQS, *p_NQS.shape, queries.start, self._scale)
            _put_product(d_3NTD[0, :, queries], ds_NQS, k_NTD[:, keys])
            if sums is None:
                _put_product(d_3NTD[1], ds_NQS.transpose(1, 2), q_NTD)
                _put_product(d_3NTD[2], given_NQS.transpose(1, 2), dy_NTD)
            else:
                sums[0, :, keys] += torch.bmm(ds_NQS.transpose(1, 2), q_NTD[:, queries])
                sums[1, :, keys] += torch.bmm(given_NQS.transpose(1, 2), dy_NQD)
        if sums is not None:
            d_3NTD[1:] = sums
        return self._merge(d_3NTD, heads_3NTD, inverse, self._turned)


def _put_product(to: Tensor, a: Tensor, b: Tensor) -> None:
    """A batch of products, put where it belongs."""
    if to.is_contiguous():
        torch.bmm(a, b, out=to)
    else:
        to.copy_(torch.bmm(a, b))


def _dropped(x: Tensor, drops: Drops | None) -> Tensor:
    """A tensor, or a copy of it that is dropped from."""
    return x if drops is None else drops(x, into=torch.empty_like(x))

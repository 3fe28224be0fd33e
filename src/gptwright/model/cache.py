"""The key-value cache that generation keeps: a row a sequence, each as long as its own text.

Rows are filled from the left, so a token stands at the same position, and sees the same tokens, whoever its
neighbours are. Nothing is padded on the left: prompts of several lengths are read together with padding
behind them, which no causal token sees and which the row's next tokens overwrite.

A pass through the model either reads the beginnings of some rows (`Beginnings`) or gives every row its next
token (`NextTokens`), which reads each row's keys and values where recomputing would redo its tokens. Rows of
one length need no mask.

Shapes: L layers, R rows, B rows of a pass, H heads, T new tokens, S all tokens so far, D channels a head,
C n_embd.
"""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor


class KeyValueCache:
    """Keys and values of the tokens seen so far, for every layer.

    Args:
        n_layer: number of blocks.
        rows: most sequences.
        n_head: heads.
        capacity: most tokens of a row.
        head_size: channels a head.
        device: where it lives.
        dtype: of keys and values.
    """

    def __init__(
        self,
        *,
        n_layer: int,
        rows: int,
        n_head: int,
        capacity: int,
        head_size: int,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        shape = (n_layer, rows, n_head, capacity, head_size)
        # Zeros, because what is masked still takes part in the sums, and NaN times nothing is NaN.
        self.keys_LRHSD = torch.zeros(shape, device=device, dtype=dtype)
        self.values_LRHSD = torch.zeros(shape, device=device, dtype=dtype)
        # What each row's next token takes in of the one before it, in models with a smear.
        self.last_RC = torch.zeros(rows, n_head * head_size, device=device, dtype=dtype)
        self.lengths = [0] * rows

    def clear(self, row: int) -> None:
        """Forgets a row's tokens."""
        self.lengths[row] = 0
        self.last_RC[row] = 0

    def move(self, source: int, target: int) -> None:
        """Puts one row in the place of another."""
        length = self.lengths[source]
        for part in (self.keys_LRHSD, self.values_LRHSD):
            part[:, target, :, :length] = part[:, source, :, :length]
        self.last_RC[target] = self.last_RC[source]
        self.lengths[target] = length


class Pass(Protocol):
    """What the model asks of the cache on its way through the layers.

    Attributes:
        positions: of the new tokens: `[T]`, the same in all rows, or `[B, T]`.
        mask: which tokens a new one may see, `[B, 1, 1, S]`; None: all that are handed to it.
        causal: whether the new tokens also see each other, each what came before it.
    """

    positions: Tensor
    mask: Tensor | None
    causal: bool

    def extended(self, layer: int, k_BHTD: Tensor, v_BHTD: Tensor) -> tuple[Tensor, Tensor]:
        """Stores a layer's new keys and values; returns all that the new tokens may see, `[B, H, S, D]`."""

    def before(self, x_BTC: Tensor) -> Tensor | None:
        """The embedding before the first new one, `[B, 1, C]`, or None; keeps each row's last one."""


class Beginnings:
    """Reads the beginnings of some rows, whatever these held before.

    Args:
        cache: where they go.
        rows: which.
        lengths: tokens of each, at least one; what the pass is given beyond them is padding.
    """

    def __init__(self, cache: KeyValueCache, rows: Sequence[int], lengths: Sequence[int]) -> None:
        device = cache.last_RC.device
        self.positions = torch.arange(max(lengths), device=device)
        self.mask: Tensor | None = None
        self.causal = True
        self._cache = cache
        self._rows = torch.tensor(rows, device=device)
        self._ends = torch.tensor(lengths, device=device) - 1
        for row, length in zip(rows, lengths, strict=True):
            cache.lengths[row] = length

    def extended(self, layer: int, k_BHTD: Tensor, v_BHTD: Tensor) -> tuple[Tensor, Tensor]:
        """Stores them; a beginning sees itself alone."""
        length = k_BHTD.shape[2]
        self._cache.keys_LRHSD[layer, :, :, :length].index_copy_(0, self._rows, k_BHTD)
        self._cache.values_LRHSD[layer, :, :, :length].index_copy_(0, self._rows, v_BHTD)
        return k_BHTD, v_BHTD

    def before(self, x_BTC: Tensor) -> None:
        """None: nothing stands before a beginning."""
        of_each = torch.arange(len(x_BTC), device=x_BTC.device)
        self._cache.last_RC.index_copy_(0, self._rows, x_BTC[of_each, self._ends])


class NextTokens:
    """Gives each of the first rows its next token.

    Args:
        cache: what came before.
        rows: how many.
    """

    def __init__(self, cache: KeyValueCache, rows: int) -> None:
        device = cache.last_RC.device
        lengths = cache.lengths[:rows]
        self.causal = False
        self._cache = cache
        self._end = max(lengths) + 1
        # In rows of one length the new token may see everything there is.
        self._even = min(lengths) == max(lengths)
        if self._even:
            self.positions = torch.tensor(lengths[:1], device=device)
            self.mask = None
        else:
            self.positions = torch.tensor(lengths, device=device)[:, None]
            self.mask = (torch.arange(self._end, device=device) <= self.positions)[:, None, None]
        self._rows = torch.arange(rows, device=device)
        for row in range(rows):
            cache.lengths[row] += 1

    def extended(self, layer: int, k_BHTD: Tensor, v_BHTD: Tensor) -> tuple[Tensor, Tensor]:
        """Stores each row's new key and value behind its old ones."""
        return (
            self._stored(self._cache.keys_LRHSD[layer, : len(self._rows)], k_BHTD),
            self._stored(self._cache.values_LRHSD[layer, : len(self._rows)], v_BHTD),
        )

    def _stored(self, all_BHSD: Tensor, new_BHTD: Tensor) -> Tensor:
        if self._even:
            all_BHSD[:, :, self._end - 1 : self._end] = new_BHTD
        else:
            all_BHSD[self._rows, :, self.positions[:, 0]] = new_BHTD[:, :, 0]
        return all_BHSD[:, :, : self._end]

    def before(self, x_BTC: Tensor) -> Tensor:
        """What stood last in each row."""
        last_BC = self._cache.last_RC[: len(self._rows)]
        before_B1C = last_BC[:, None].clone()
        last_BC.copy_(x_BTC[:, -1])
        return before_B1C

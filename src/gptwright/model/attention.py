"""Causal self-attention, and the key-value cache that generation keeps.

`scaled_dot_product_attention` picks a fused kernel where the device has one, so no T×T matrix is stored.
With a cache only the new tokens pass through the layer: a step at context T reads T keys and values where
recomputing would redo T tokens.

Shapes: B batch, T new tokens, S all tokens so far, C n_embd, H heads, D = C / H.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gptwright.arithmetic.shape import ModelShape
from gptwright.model.linear import Linear
from gptwright.model.modern import Rotary, rms_norm


class KeyValueCache:
    """Keys and values of the tokens seen so far, for every layer.

    Args:
        n_layer: number of blocks.
        batch: sequences.
        n_head: heads.
        capacity: most tokens a sequence can hold.
        head_size: channels a head.
        device: where it lives.
        dtype: of keys and values.
    """

    def __init__(
        self,
        *,
        n_layer: int,
        batch: int,
        n_head: int,
        capacity: int,
        head_size: int,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        shape = (n_layer, batch, n_head, capacity, head_size)
        self.keys_LBHSD = torch.empty(shape, device=device, dtype=dtype)
        self.values_LBHSD = torch.empty(shape, device=device, dtype=dtype)
        self.capacity = capacity
        self.length = 0
        self.last_embedding_B1C: Tensor | None = None

    def clear(self) -> None:
        """Forgets all tokens."""
        self.length = 0
        self.last_embedding_B1C = None

    def extended(self, layer: int, k_BHTD: Tensor, v_BHTD: Tensor) -> tuple[Tensor, Tensor]:
        """Stores a layer's new keys and values behind the old ones; returns all `[B, H, S, D]`.

        `length` is moved by the model once all layers have stored theirs.
        """
        end = self.length + k_BHTD.shape[2]
        self.keys_LBHSD[layer, :, :, self.length : end] = k_BHTD
        self.values_LBHSD[layer, :, :, self.length : end] = v_BHTD
        return self.keys_LBHSD[layer, :, :, :end], self.values_LBHSD[layer, :, :, :end]


class CausalSelfAttention(nn.Module):
    """Multi-head attention in which a token sees itself and what came before it."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.n_head = shape.n_head
        self.dropout = shape.dropout
        self.qk_norm = shape.ingredients.qk_norm
        self.c_attn = Linear(shape.n_embd, 3 * shape.n_embd, bias=shape.bias)
        self.c_proj = Linear(shape.n_embd, shape.n_embd, bias=shape.bias)
        self.resid_dropout = nn.Dropout(shape.dropout)

    def forward(
        self, x_BTC: Tensor, *, layer: int, cache: KeyValueCache | None = None, rotary: Rotary | None = None
    ) -> Tensor:
        """`[B, T, C]` to `[B, T, C]`; with a cache the tokens continue it."""
        B, T, C = x_BTC.shape
        q_BTHD, k_BTHD, v_BTHD = self.c_attn(x_BTC).view(B, T, 3, self.n_head, C // self.n_head).unbind(dim=2)
        if self.qk_norm:
            q_BTHD, k_BTHD = rms_norm(q_BTHD), rms_norm(k_BTHD)
        if rotary is not None:
            start = cache.length if cache is not None else 0
            q_BTHD, k_BTHD = rotary(q_BTHD, start), rotary(k_BTHD, start)
        q_BHTD, k_BHSD, v_BHSD = (part.transpose(1, 2) for part in (q_BTHD, k_BTHD, v_BTHD))
        continues = False
        if cache is not None:
            continues = cache.length > 0
            assert not continues or T == 1, "a prompt must come whole, before the first generated token"
            k_BHSD, v_BHSD = cache.extended(layer, k_BHSD, v_BHSD)
        # A single new token may see everything that is cached, so it needs no mask.
        y_BHTD = F.scaled_dot_product_attention(
            q_BHTD,
            k_BHSD,
            v_BHSD,
            dropout_p=self.dropout if self.training else 0.0,
            is_causal=not continues,
        )
        y_BTC = y_BHTD.transpose(1, 2).reshape(B, T, C)
        projected: Tensor = self.resid_dropout(self.c_proj(y_BTC))
        return projected

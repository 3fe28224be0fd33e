"""Causal self-attention.

`scaled_dot_product_attention` picks a fused kernel where the device has one, so no T×T matrix is stored;
a CPU has none with dropout (`gptwright.model.dropout`).

Shapes: B batch, T new tokens, S all tokens so far, C n_embd, H heads, D = C / H.
"""

import functools

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gptwright.arithmetic.shape import ModelShape
from gptwright.model.cache import Pass
from gptwright.model.dropout import Dropout, draws_here, dropped_attention
from gptwright.model.linear import Linear
from gptwright.model.modern import Rotary, rms_norm


class CausalSelfAttention(nn.Module):
    """Multi-head attention in which a token sees itself and what came before it."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.n_head = shape.n_head
        self.dropout = shape.dropout
        self.in_float32 = shape.float32_attention
        self.qk_norm = shape.ingredients.qk_norm
        self.c_attn = Linear(shape.n_embd, 3 * shape.n_embd, bias=shape.bias)
        self.c_proj = Linear(shape.n_embd, shape.n_embd, bias=shape.bias)
        self.resid_dropout = Dropout(shape.dropout)

    def forward(
        self, x_BTC: Tensor, *, layer: int, cached: Pass | None = None, rotary: Rotary | None = None
    ) -> Tensor:
        """`[B, T, C]` to `[B, T, C]`; what is cached stands before it."""
        B, T, C = x_BTC.shape
        qkv_BT3HD = self.c_attn(x_BTC).view(B, T, 3, self.n_head, C // self.n_head)
        if self.qk_norm or rotary is not None:
            qk_BT2HD, v_BT1HD = qkv_BT3HD.split((2, 1), dim=2)
            if self.qk_norm:
                qk_BT2HD = rms_norm(qk_BT2HD)
            if rotary is not None:
                qk_BT2HD = rotary(qk_BT2HD, slice(T) if cached is None else cached.positions)
            q_BTHD, k_BTHD = qk_BT2HD.unbind(dim=2)
            v_BTHD = v_BT1HD.squeeze(2)
        else:
            q_BTHD, k_BTHD, v_BTHD = qkv_BT3HD.unbind(dim=2)
        q_BHTD, k_BHSD, v_BHSD = (part.transpose(1, 2) for part in (q_BTHD, k_BTHD, v_BTHD))
        if cached is not None:
            k_BHSD, v_BHSD = cached.extended(layer, k_BHSD, v_BHSD)
        y_BHTD = self._attend(q_BHTD, k_BHSD, v_BHSD, cached)
        y_BTC = y_BHTD.transpose(1, 2).reshape(B, T, C)
        projected: Tensor = self.resid_dropout(self.c_proj(y_BTC))
        return projected

    def _attend(self, q_BHTD: Tensor, k_BHSD: Tensor, v_BHSD: Tensor, cached: Pass | None) -> Tensor:
        """What each head gathers, `[B, H, T, D]`."""
        if self.training and self.dropout and cached is None and draws_here(q_BHTD):
            return dropped_attention(q_BHTD, k_BHSD, v_BHSD, self.dropout)
        attend = functools.partial(
            F.scaled_dot_product_attention,
            attn_mask=None if cached is None else cached.mask,
            dropout_p=self.dropout if self.training else 0.0,
            is_causal=cached is None or cached.causal,
        )
        kind = q_BHTD.device.type
        if self.in_float32 and torch.is_autocast_enabled(kind):
            with torch.autocast(kind, enabled=False):
                return attend(q_BHTD.float(), k_BHSD.float(), v_BHSD.float())
        return attend(q_BHTD, k_BHSD, v_BHSD)

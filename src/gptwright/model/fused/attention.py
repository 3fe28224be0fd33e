"""Causal attention with its backward pass, by our own kernels.

Probabilities are kept nowhere: the way back computes them again from the logarithm of each query's sum. Nor
is it kept what dropout took of them, because it can be drawn again.

Shapes: B batch, T tokens, C n_embd, H heads, D = C / H, N = B · H, M = B · T.
"""

import torch
from torch import Tensor

from gptwright.model.fused.recipe import Recipe


class Attention:
    """Causal attention over `[M, 3C]` of B sequences, and its way back.

    Args:
        recipe: heads, what is done to queries and keys, dropout.
        shape: B, T and C.
    """

    def __init__(self, recipe: Recipe, shape: tuple[int, int, int]) -> None:
        batch, tokens, channels = shape
        self.recipe = recipe
        self.places = batch, tokens, recipe.n_head, channels // recipe.n_head
        own, others = recipe.rotary or (None, None)
        scaled, epsilon = recipe.qk_epsilon is not None, recipe.qk_epsilon or 0.0
        drops = recipe.drops()
        seed, dropped, factor = (0, 0, 1.0) if drops is None else (drops.seed, drops.dropped, drops.factor)
        self._how = own, others, int(scaled), epsilon, seed, dropped, factor

    def __call__(self, qkv_MP: Tensor) -> tuple[Tensor, Tensor]:
        """What the heads gather, `[M, C]`, and the logarithms `[N, T]`, which the way back needs."""
        B, T, H, D = self.places
        y_MC, logarithms_NT = qkv_MP.new_empty(B * T, H * D), torch.empty(B * H, T)
        self.recipe.kernels("attention", qkv_MP, y_MC, logarithms_NT, *self._how, *self.places)
        return y_MC, logarithms_NT

    def back(self, dy_MC: Tensor, qkv_MP: Tensor, y_MC: Tensor, logarithms_NT: Tensor) -> Tensor:
        """The gradient of `[M, 3C]`."""
        d_MP = torch.empty_like(qkv_MP)
        self.recipe.kernels(
            "attention_back", qkv_MP, y_MC, dy_MC, logarithms_NT, d_MP, *self._how, *self.places
        )
        return d_MP

"""What a fused block is made of, and what it drops.

Shapes: T tokens, D size of a head.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from gptwright.kernels.library import Kernels
from gptwright.model.dropout import FATES


@dataclass(frozen=True, slots=True)
class Drops:
    """Which elements of a tensor are dropped: a function of the seed and of an element's place.

    So it is kept nowhere, and the way back asks again.

    A fate takes 16 bits, as in `gptwright.model.dropout`, and what stays is scaled by exactly the inverse of
    the rounded probability.
    """

    kernels: Kernels
    seed: int
    probability: float

    def __call__(self, x: Tensor, *, into: Tensor | None = None) -> Tensor:
        """Drops from a contiguous tensor in place, or into another; on the way back from its gradient."""
        to = x if into is None else into
        name = "drop" if x.dtype == self.kernels.dtype else "drop_stream"
        self.kernels(name, x, to, self.seed, self.dropped, self.factor, x.numel())
        return to

    @property
    def dropped(self) -> int:
        """Of so many fates as there are, those that drop."""
        return min(round(self.probability * FATES), FATES - 1)

    @property
    def factor(self) -> float:
        """What stays is multiplied with it."""
        return FATES / (FATES - self.dropped)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What a block is made of beside its parameters.

    Attributes:
        kernels: what works between the products.
        n_head: H.
        relu2: squared ReLU instead of GELU.
        norm_epsilon: under the root of norms over channels.
        qk_epsilon: under that of queries and keys; None does not normalize them.
        rotary: factors `[T, D]` by which each channel and its partner are turned; None does not turn.
        dropout: probability that an element of a branch or of attention is dropped.
    """

    kernels: Kernels
    n_head: int
    relu2: bool
    norm_epsilon: float
    qk_epsilon: float | None
    rotary: tuple[Tensor, Tensor] | None
    dropout: float

    @property
    def activation(self) -> str:
        """The kernel between the MLP's two layers."""
        return "relu2" if self.relu2 else "gelu"

    def drops(self) -> Drops | None:
        """New draws from torch's generator for one tensor; None where nothing is dropped."""
        if not self.dropout:
            return None
        return Drops(self.kernels, int(torch.empty((), dtype=torch.int64).random_()), self.dropout)

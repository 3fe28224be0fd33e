"""Numbers that kernels are given."""

import torch
from torch import Tensor

# Half a unit in the last place of a bfloat16.
HALF = 2**-8


def draw(*shape: int, seed: int = 0, times: float = 1.0) -> Tensor:
    """Normal numbers in bfloat16."""
    return (torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * times).bfloat16()

"""Numbers that kernels are given."""

import torch
from torch import Tensor

# How far a result may be off: half a unit in the last place of a bfloat16, and what arithmetic in float32
# loses.
OFF = {torch.bfloat16: 2**-8, torch.float32: 1e-5}


def draw(*shape: int, dtype: torch.dtype = torch.bfloat16, seed: int = 0, times: float = 1.0) -> Tensor:
    """Normal numbers that are whole in bfloat16, whatever their dtype."""
    drawn = torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * times
    return drawn.bfloat16().to(dtype)

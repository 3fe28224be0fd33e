"""Muon's direction: a momentum made orthogonal, batched over matrices of one shape.

AdamW scales each number of a gradient; Muon sets all singular values of a matrix's momentum to about one
(Jordan et al. 2024, kellerjordan.github.io/posts/muon), by Newton-Schulz steps with the coefficients of Polar
Express (Amsel et al. 2025, arXiv 2505.16932, for singular values from 1e-3 to 1). That costs products of the
weights' own size and none of the batch's: about n_embd over the tokens of a step for each Newton-Schulz step,
so under 2 % for five at half a million tokens, and more than half a step at a laptop's 768.

torch's own Muon takes one matrix after another in bfloat16. Here matrices of one shape go together, and in
float32 where bfloat16 is not in the hardware; docs/lab-notes.md has both timed.
"""

import math
from collections import defaultdict
from collections.abc import Sequence

import torch
from torch import Tensor

# Each step is a·X + (b·A + c·A²)·X with A = X·Xᵀ.
COEFFICIENTS = (
    (8.28721201814563, -23.595886519098837, 17.300387312530933),
    (4.107059111542203, -2.9478499167379106, 0.5448431082926601),
    (3.9486908534822946, -2.908902115962949, 0.5518191394370137),
    (3.3184196573706015, -2.488488024314874, 0.51004894012372),
    (2.300652019954817, -1.6689039845747493, 0.4188073119525673),
)
# The first step's bound is 1, and a norm is only an estimate in low precision: stay this factor below it.
MARGIN = 1.02


def orthogonalized(x_NRC: Tensor, *, steps: int = 5, dtype: torch.dtype = torch.float32) -> Tensor:
    """The nearest matrices with singular values of about 1.

    Args:
        x_NRC: N matrices `[R, C]`, any R and C.
        steps: 1 to 5; the fewer, the further small singular values stay below 1.
        dtype: of the products.

    Returns:
        `[N, R, C]` in `x_NRC`'s dtype.
    """
    wide = x_NRC.shape[-2] <= x_NRC.shape[-1]
    x = (x_NRC if wide else x_NRC.mT).to(dtype)
    x = x / (x.norm(dim=(-2, -1), keepdim=True) * MARGIN).clamp_min(1e-7)
    for a, b, c in COEFFICIENTS[:steps]:
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return (x if wide else x.mT).to(x_NRC.dtype)


def orthogonalized_each(
    matrices: Sequence[Tensor], *, steps: int = 5, dtype: torch.dtype = torch.float32
) -> list[Tensor]:
    """`orthogonalized` of matrices of any shapes, those of one shape (or its transpose) at once.

    Args:
        matrices: each `[R, C]`.
        steps: of Newton-Schulz.
        dtype: of the products.
    """
    by_shape: dict[tuple[int, int], list[int]] = defaultdict(list)
    for index, matrix in enumerate(matrices):
        rows, columns = sorted(matrix.shape)
        by_shape[rows, columns].append(index)
    results = list(matrices)
    for (rows, _), indices in by_shape.items():
        wide = [matrices[i] if matrices[i].shape[0] == rows else matrices[i].mT for i in indices]
        for i, result in zip(
            indices, orthogonalized(torch.stack(wide), steps=steps, dtype=dtype), strict=True
        ):
            results[i] = result if matrices[i].shape[0] == rows else result.mT
    return results


def update_scale(rows: int, columns: int) -> float:
    """How far a matrix `[rows, columns]` moves for a learning rate of 1.

    √(rows / columns) where it has more outputs than inputs, so that an output moves as far whatever the width
    (Bernstein 2025, jeremybernste.in/writing/deriving-muon).
    """
    return math.sqrt(max(1.0, rows / columns))

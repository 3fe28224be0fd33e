"""Floating-point operations of training, and model FLOPs utilization (MFU).

The convention is the one that people publish (PaLM, arXiv 2204.02311, appendix B; nanoGPT's estimate):
6 per parameter and token for the matrices, forward and backward, plus 12·n_layer·n_embd·block_size for
attention counted as if it were not causal. The position table does no multiplication and is not counted;
the token table is, because the output head is the same matrix.
"""


def flops_per_token(*, parameters_in_flops: int, n_layer: int, n_embd: int, block_size: int) -> int:
    """FLOPs to train on one token, `palm` convention.

    Args:
        parameters_in_flops: parameters without the position table, one vocabulary matrix counted.
        n_layer: blocks.
        n_embd: width.
        block_size: context length in tokens.
    """
    return 6 * parameters_in_flops + 12 * n_layer * n_embd * block_size


def causal_flops_per_token(*, parameters_in_flops: int, n_layer: int, n_embd: int, block_size: int) -> int:
    """FLOPs to train on one token with attention counted as causal, which is half of `palm`'s.

    A kernel that skips what a token may not look at does this much; llm.c and nanochat count so.
    """
    return 6 * parameters_in_flops + 6 * n_layer * n_embd * block_size


def mfu(*, flops_per_token: float, tokens_per_second: float, peak_flops: float) -> float:
    """The share of a device's peak that the model's own arithmetic reaches, from 0 to 1."""
    return flops_per_token * tokens_per_second / peak_flops


def muon_flops(*, n_layer: int, n_embd: int, steps: int) -> int:
    """FLOPs of one Muon update: `steps` Newton-Schulz steps on every matrix of the blocks.

    A step multiplies X·Xᵀ, its square, and their sum with X: 6·n_embd³ for a square matrix, 18·n_embd³ for
    one four times as long. A block has four square ones (query, key, value, projection) and two long ones.
    """
    return 60 * n_layer * n_embd**3 * steps

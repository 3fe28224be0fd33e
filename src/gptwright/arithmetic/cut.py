"""How one optimizer step's sequences are cut over processes and micro-batches.

The step's batch is drawn whole, and each process takes a stretch of it. Shares differ by one sequence at
most, so every number of processes up to the number of sequences will do. All processes make the same number
of forward passes, because those of sharded weights are collective. Where the number of processes divides
`gradient_accumulation_steps`, this is nanoGPT's cut.

The gradient of a step is the mean over its sequences. A micro-batch gives the mean over its own, and
averaging over processes divides by their number; `divisor` undoes both, so that the sum is the same whatever
the cut.
"""

import itertools
from dataclasses import dataclass

from gptwright.errors import ConfigError


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """One forward and backward pass.

    Attributes:
        rows: which sequences of the process's share.
        divisor: what the mean loss over them is divided by, so that the mean over processes of the sums over
            micro-batches is the mean over the step. Infinite for a pass that only keeps others company.
    """

    rows: slice
    divisor: float


@dataclass(frozen=True, slots=True)
class Cut:
    """One process's part of a step.

    Attributes:
        share: its sequences in the step's batch.
        micro_batches: how it goes through them.
    """

    share: slice
    micro_batches: tuple[MicroBatch, ...]


def cut_step(sequences: int, *, batch_size: int, rank: int = 0, size: int = 1) -> Cut:
    """The part of process `rank` of `size` in a step of so many sequences.

    Args:
        sequences: in the whole step.
        batch_size: most sequences in a micro-batch.
        rank: which process.
        size: how many there are.

    Raises:
        ConfigError: there are more processes than sequences.
    """
    begin, end = sequences * rank // size, sequences * (rank + 1) // size
    passes = passes_per_process(sequences, batch_size=batch_size, size=size)
    count = end - begin
    edges = [count * number // passes for number in range(passes + 1)]
    micro_batches = []
    for first, after in itertools.pairwise(edges):
        if after > first:
            micro_batches.append(MicroBatch(slice(first, after), sequences / ((after - first) * size)))
        else:
            # Fewer sequences than passes: one is repeated, and counts for nothing.
            micro_batches.append(MicroBatch(slice(0, 1), float("inf")))
    return Cut(slice(begin, end), tuple(micro_batches))


def passes_per_process(sequences: int, *, batch_size: int, size: int) -> int:
    """Micro-batches of a step in each process: as many as the largest share needs.

    Raises:
        ConfigError: there are more processes than sequences.
    """
    if size > sequences:
        raise ConfigError(
            f"{size} processes cannot share a step of {sequences} sequences",
            why="each takes at least one; the step is batch_size × gradient_accumulation_steps",
            fix=f"start at most {sequences} processes, or --gradient_accumulation_steps={size}",
        )
    largest = -(-sequences // size)
    return -(-largest // batch_size)


def shares(sequences: int, size: int) -> tuple[int, int]:
    """The smallest and the largest share of a step."""
    return sequences // size, -(-sequences // size)

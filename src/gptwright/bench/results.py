"""What `bench` found, as values and as JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from gptwright.bench.process import Finished


@dataclass(frozen=True, slots=True, kw_only=True)
class Peaks:
    """This machine, and what it reached just now.

    Attributes:
        machine: names and versions.
        dtype: in which training multiplies matrices here, and `matmul_flops` was measured.
        matmul_flops: fastest square matrix product, FLOP/s.
        bandwidth: fastest copy in memory, bytes read and written, bytes/s.
    """

    machine: Mapping[str, str | float]
    dtype: str
    matmul_flops: float
    bandwidth: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One trainer's medians over the rounds.

    Attributes:
        trainer: who.
        runs: every round.
        tokens_per_second: of the median step.
        fraction_of_peak: its model FLOPs (`palm`) over the peak, the median over the rounds, before each of
            which the peak is measured; None where its own recipe has another model.
        wall_seconds: of the whole process.
        peak_bytes: resident memory.
        val_loss: last validation loss that it printed.
        times_ours_wall: this trainer's wall time over ours, the median over the rounds.
        times_ours_step: the same of a step.
    """

    trainer: str
    runs: tuple[Finished, ...]
    tokens_per_second: float
    fraction_of_peak: float | None
    wall_seconds: float
    peak_bytes: float
    val_loss: float
    times_ours_wall: float
    times_ours_step: float


def bench_document(peaks: Peaks, results: Mapping[str, Sequence[Row]], *, rounds: int) -> dict[str, Any]:
    """Everything as one JSON document."""
    return {
        "schema": "gptwright.bench/1",
        **asdict(peaks),
        "rounds": rounds,
        "workloads": {name: [asdict(row) for row in rows] for name, rows in results.items()},
    }

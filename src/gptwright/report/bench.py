"""What `bench` measured, in the terminal."""

import statistics
from collections.abc import Sequence

from rich.console import Console

from gptwright import units
from gptwright.bench.results import Peaks, Row
from gptwright.report.terminal import titled_table


def show_peaks(console: Console, peaks: Peaks) -> None:
    """Prints this machine's peaks in a line."""
    console.print(
        f"[bold]{peaks.machine['device']}[/], {peaks.machine['threads']} threads: {peaks.dtype} matrices"
        f" {units.flops_rate(peaks.matmul_flops)}, memory {units.size(peaks.bandwidth)}/s, measured now",
        soft_wrap=True,
    )


def show_rows(console: Console, name: str, about: str, rows: Sequence[Row]) -> None:
    """Prints a workload's trainers as a table; ratios are theirs over ours."""
    table = titled_table(f"{name}: {about}")
    heads = ("trainer", "a step", "tokens/s", "of the peak", "wall time", "memory", "val loss")
    for head in (*heads, "× our step", "× our wall"):
        table.add_column(head, justify="left" if head == "trainer" else "right")
    for row in rows:
        step = statistics.median(run.step_seconds for run in row.runs)
        table.add_row(
            row.trainer,
            f"{1e3 * step:,.1f} ms",
            f"{row.tokens_per_second:,.0f}",
            "–" if row.fraction_of_peak is None else f"{row.fraction_of_peak:.0%}",
            f"{row.wall_seconds:,.1f} s",
            units.size(row.peak_bytes),
            f"{row.val_loss:.4f}",
            f"{row.times_ours_step:.2f}",
            f"{row.times_ours_wall:.2f}",
        )
    console.print(table)
    console.print()

"""A comparison in the terminal: what differs, the losses at equal tokens, and who is ahead."""

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gptwright import units
from gptwright.diagnose.compare import Comparison
from gptwright.diagnose.reading import Reading
from gptwright.diagnose.series import val_loss
from gptwright.report.findings import show_findings
from gptwright.report.terminal import titled_table


def show_comparison(console: Console, comparison: Comparison, names: tuple[str, str]) -> None:
    """Prints two runs side by side."""
    console.print(f"[bold]a[/] {escape(names[0])}   [bold]b[/] {escape(names[1])}", soft_wrap=True)
    if comparison.differences:
        table = _table("What is not held fixed", "setting", "a", "b")
        for difference in comparison.differences:
            table.add_row(difference.field, escape(str(difference.a)), escape(str(difference.b)))
        console.print(table)
    else:
        console.print("No setting that both name differs.")
    for reason in comparison.reasons:
        console.print(f"[yellow]{'note' if comparison.comparable else 'not comparable'}:[/] {escape(reason)}")
    for title, points, form in (
        (f"At equal {comparison.counts}", comparison.at_equal_tokens, units.count),
        ("At equal training time", comparison.at_equal_seconds, units.duration),
    ):
        if points:
            table = _table(title, "at", "a", "b", "b − a", "± 1 s.e.")
            for p in points:
                table.add_row(
                    form(p.at), f"{p.a:.4f}", f"{p.b:.4f}", f"{p.delta:+.4f}", f"{p.standard_error:.4f}"
                )
            console.print(table)
    console.print()
    show_findings(console, comparison.findings, ())


def show_runs(console: Console, names: Sequence[str], readings: Sequence[Reading]) -> None:
    """Prints any number of runs as one table."""
    table = _table(
        "Runs", "run", "parameters", "tokens/step", "tokens", "best val loss", "at step", "tokens/s", "MFU"
    )
    for name, reading in zip(names, readings, strict=True):
        val = val_loss(reading)
        best = val.best
        table.add_row(
            escape(name),
            reading.sizes.parameters.text if reading.sizes.parameters is not None else "–",
            reading.speed.tokens_per_step.text if reading.speed.tokens_per_step is not None else "–",
            reading.progress.tokens_seen.text if reading.progress.tokens_seen is not None else "–",
            f"{val.value[best]:.4f}" if best is not None else "–",
            f"{val.step[best]:,}" if best is not None else "–",
            (
                f"{reading.speed.tokens_per_second.number:,.0f}"
                if reading.speed.tokens_per_second is not None
                else "–"
            ),
            reading.mfu.text if reading.mfu is not None else "–",
        )
    console.print(table)
    console.print()


def _table(title: str, *columns: str) -> Table:
    table = titled_table(title)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table

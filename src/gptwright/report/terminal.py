"""What a person sees in the terminal: errors, tables of facts, the start and the end of a run.

Paths and commands are never wrapped, so that they can be copied. Nothing here computes: it shows records and
facts.
"""

import io
import sys
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gptwright import units
from gptwright.errors import GptwrightError
from gptwright.facts import Fact
from gptwright.record.metrics import Record

PIPE_WIDTH = 120


def console_for(*, stderr: bool = False, quiet: bool = False) -> Console:
    """A console as wide as the terminal; in a pipe, wide enough for the tables; a quiet one shows nothing.

    A character that the terminal's encoding does not have becomes a question mark there, and no traceback.
    """
    stream = sys.stderr if stderr else sys.stdout
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="replace")
    console = Console(stderr=stderr, highlight=False, soft_wrap=False, quiet=quiet)
    if console.is_terminal:
        return console
    return Console(stderr=stderr, highlight=False, width=PIPE_WIDTH, quiet=quiet)


def show_error(error: GptwrightError) -> None:
    """Prints an error with its reason and remedy to standard error."""
    Console(stderr=True, highlight=False, soft_wrap=True).print(f"[bold red]error:[/] {escape(str(error))}")


def titled_table(title: str) -> Table:
    """An empty table as all of ours look: its title at the left, no lines."""
    return Table(
        title=title, title_justify="left", title_style="bold", header_style="dim", box=None, pad_edge=False
    )


def facts_table(facts: Iterable[Fact], *, title: str) -> Table:
    """Facts as a table: name, value, origin, reason."""
    table = titled_table(title)
    table.add_column("name", no_wrap=True)
    table.add_column("value", style="bold", overflow="fold")
    table.add_column("origin", style="dim", no_wrap=True)
    table.add_column("from", style="dim", overflow="fold")
    for fact in facts:
        table.add_row(escape(fact.name), escape(fact.text), str(fact.origin), escape(fact.reason))
    return table


def show_startup(console: Console, facts: Sequence[Fact], warnings: Sequence[str]) -> None:
    """Prints the start-up table and the warnings about settings."""
    console.print(facts_table(facts, title="This run"))
    for warning in warnings:
        console.print(f"[yellow]warning:[/] {escape(warning)}")
    console.print()


def show_summary(console: Console, records: Sequence[Record], *, folder: str) -> None:
    """The end of a run: its losses with their errors, its speed, and where everything is."""
    evaluations = [record for record in records if record["kind"] == "eval"]
    lines = [record for record in records if record["kind"] == "train"]
    console.print()
    if evaluations:
        last = evaluations[-1]
        best = min(evaluations, key=lambda record: float(record["val_loss"]))
        console.print(f"[bold]validation loss[/] {_with_error(last)} at step {last['step']}")
        if best is not last:
            console.print(f"[bold]best[/] {_with_error(best)} at step {best['step']}")
    if lines:
        middle = sorted(line["seconds"] for line in lines)[len(lines) // 2]
        fast = next(line for line in lines if line["seconds"] == middle)
        console.print(
            f"[bold]speed[/] {units.duration(middle)} a step, {fast['tokens_per_second']:,.0f} tokens/s,"
            f" MFU {units.percent(fast['mfu'])} of the measured peak (medians)"
        )
    console.print(f"[bold]run folder[/] {escape(folder)}", soft_wrap=True)


def _with_error(record: Record) -> str:
    value = number_text(record["val_loss"], ".4f")
    error = record["val_loss_standard_error"]
    return (
        value
        if error is None
        else f"{value} ± {number_text(error, '.4f')} (standard error, {record['val_windows']} windows)"
    )


def number_text(value: float | str, form: str) -> str:
    """A number that may be stored as its name (`nan`, `inf`)."""
    return value if isinstance(value, str) else format(value, form)

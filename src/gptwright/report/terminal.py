"""What a person sees in the terminal: errors, tables of facts, the start and the end of a run.

Paths and commands are never wrapped, so that they can be copied. Nothing here computes: it shows records and
facts.
"""

import contextlib
import io
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO, cast

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gptwright import units
from gptwright.errors import GptwrightError
from gptwright.facts import Fact
from gptwright.record.metrics import Record

PIPE_WIDTH = 120


class Outlived:
    """A stream whose other end may go: its terminal closed, its pager left, its disk full.

    Nobody is told anything then, and whoever writes goes on. All else is the stream's.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Writes if somebody is there."""
        with self._whoever_is_there():
            self._stream.write(text)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """The same for many."""
        with self._whoever_is_there():
            self._stream.writelines(lines)

    def flush(self) -> None:
        """Hands on what was written if somebody is there."""
        with self._whoever_is_there():
            self._stream.flush()

    @contextlib.contextmanager
    def _whoever_is_there(self) -> Iterator[None]:
        try:
            yield
        except OSError:
            # What is still held, and all to come, must go somewhere.
            with Path(os.devnull).open("w") as nowhere, contextlib.suppress(OSError):
                os.dup2(nowhere.fileno(), self._stream.fileno())


def console_for(*, stderr: bool = False, quiet: bool = False, outlives: bool = False) -> Console:
    """A console as wide as the terminal; in a pipe, wide enough for the tables.

    A character that the terminal's encoding does not have becomes a question mark there, and no traceback.

    Args:
        stderr: whether it writes to standard error.
        quiet: whether it shows nothing.
        outlives: whether the work goes on when nobody reads it any more; else that ends it.
    """
    stream = sys.stderr if stderr else sys.stdout
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="replace")
    file = cast("TextIO", Outlived(stream)) if outlives else None
    console = Console(file=file, stderr=stderr, highlight=False, soft_wrap=False, quiet=quiet)
    if console.is_terminal:
        return console
    return Console(file=file, stderr=stderr, highlight=False, width=PIPE_WIDTH, quiet=quiet)


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

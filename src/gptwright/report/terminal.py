"""What a person sees in the terminal: the start-up table, the training screen, the summary.

On a terminal, training is a progress bar under the lines that matter; in a pipe, a file, or with `plain`,
it is nanoGPT's lines, which existing tools read. Paths and
commands are never wrapped, so that they can be copied. Nothing here computes: it shows records and facts.
"""

from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from gptwright import units
from gptwright.errors import GptwrightError
from gptwright.facts import Fact
from gptwright.record.log_text import log_lines
from gptwright.record.metrics import Record

PIPE_WIDTH = 120


def console_for(*, stderr: bool = False, quiet: bool = False) -> Console:
    """A console as wide as the terminal; in a pipe, wide enough for the tables. A quiet one shows nothing."""
    console = Console(stderr=stderr, highlight=False, soft_wrap=False, quiet=quiet)
    return (
        console
        if console.is_terminal
        else Console(stderr=stderr, highlight=False, width=PIPE_WIDTH, quiet=quiet)
    )


def show_error(error: GptwrightError) -> None:
    """Prints an error with its reason and remedy to standard error."""
    Console(stderr=True, highlight=False, soft_wrap=True).print(f"[bold red]error:[/] {escape(str(error))}")


def facts_table(facts: Iterable[Fact], *, title: str) -> Table:
    """Facts as a table: name, value, origin, reason."""
    table = Table(
        title=title, title_justify="left", title_style="bold", header_style="dim", box=None, pad_edge=False
    )
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


class TrainingScreen(Protocol):
    """A listener that is opened around a run."""

    def __enter__(self) -> Self:
        """Begins showing."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ends showing."""

    def recorded(self, record: Record) -> None:
        """Shows a line of metrics."""

    def stepped(self, step: int) -> None:
        """Shows that a step was made."""


class PlainScreen:
    """nanoGPT's lines, one after another."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing is open."""

    def recorded(self, record: Record) -> None:
        """Prints the record's lines, straight: rendering them would cost a percent of a small step."""
        self.console.file.writelines(f"{line}\n" for line in log_lines(record))
        self.console.file.flush()

    def stepped(self, step: int) -> None:
        """Lines come with records alone."""


class NoScreen:
    """Shows nothing: one process of several speaks, and the others have this."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing is open."""

    def recorded(self, record: Record) -> None:
        """Nothing is shown."""

    def stepped(self, step: int) -> None:
        """Nothing is shown."""


class ProgressScreen:
    """A progress bar with loss, speed, MFU and time left; evaluations stay above it."""

    def __init__(self, console: Console, *, max_iters: int, first_step: int) -> None:
        self.progress = Progress(
            TextColumn("step {task.completed}/{task.total}"),
            BarColumn(bar_width=None),
            TaskProgressColumn(),
            TextColumn("{task.fields[numbers]}"),
            TextColumn("left"),
            TimeRemainingColumn(compact=True),
            console=console,
        )
        self.task = self.progress.add_task("train", total=max_iters, completed=first_step, numbers="")

    def __enter__(self) -> Self:
        self.progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.progress.stop()

    def recorded(self, record: Record) -> None:
        """Moves training numbers into the bar and prints the rest above it."""
        if record["kind"] == "train":
            numbers = (
                f"loss {_number(record['loss_mean'], '.4f')}"
                f" · {record['tokens_per_second']:,.0f} tok/s · MFU {units.percent(record['mfu'])}"
            )
            self.progress.update(self.task, numbers=numbers)
        elif record["kind"] in ("eval", "resume"):
            for line in log_lines(record):
                self.progress.console.out(line, highlight=False)

    def stepped(self, step: int) -> None:
        """Moves the bar."""
        self.progress.update(self.task, completed=step + 1)


def training_screen(console: Console, *, plain: bool, max_iters: int, first_step: int) -> TrainingScreen:
    """The bar on a terminal; plain lines elsewhere or if asked for; nothing on a quiet console."""
    if console.quiet:
        return NoScreen()
    if plain or not console.is_terminal:
        return PlainScreen(console)
    return ProgressScreen(console, max_iters=max_iters, first_step=first_step)


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
    value = _number(record["val_loss"], ".4f")
    error = record["val_loss_standard_error"]
    return (
        value if error is None else f"{value} ± {error:.4f} (standard error, {record['val_windows']} windows)"
    )


def _number(value: float | str, form: str) -> str:
    """A number that may be stored as its name (`nan`, `inf`)."""
    return value if isinstance(value, str) else format(value, form)

"""The screen of a run that trains: a progress bar under the lines that matter, or plain lines.

On a terminal, training is a bar; in a pipe, a file, or with `plain`, it is nanoGPT's lines, which existing
tools read. Nothing here computes: it shows records.
"""

from types import TracebackType
from typing import Protocol, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from gptwright import units
from gptwright.record.log_text import log_lines
from gptwright.record.metrics import Record
from gptwright.report.terminal import number_text


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
                f"loss {number_text(record['loss_mean'], '.4f')}"
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

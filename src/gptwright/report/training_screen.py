"""The training screen: what a person sees while a run trains.

On a terminal, a few lines that repaint in place under the evaluations: progress and time left, the loss and
its curve, speed and MFU, and the worst findings so far, diagnosed beside the run. In a pipe, a file, CI, a
notebook, on a terminal that cannot move its cursor, or with `plain`, it is nanoGPT's lines, which existing
tools read. Nothing here computes: it shows records, and what `record/progress.py` folds from them.
"""

import math
import os
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderResult
from rich.control import Control
from rich.live import Live
from rich.segment import ControlType
from rich.text import Text

from gptwright import units
from gptwright.findings import Severity
from gptwright.record.log_text import log_lines
from gptwright.record.metrics import Record
from gptwright.record.progress import RunProgress, number
from gptwright.report.aside import DiagnosisAside
from gptwright.report.findings import STYLES
from gptwright.report.sparkline import sparkline
from gptwright.report.terminal import number_text

# Wider lines are harder to read at a glance, and a wide terminal is often made narrower.
WIDEST = 100
FRAMES_PER_SECOND = 4
FINDINGS_SHOWN = 3


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


def training_screen(
    console: Console, *, plain: bool, progress: RunProgress, folder: Path | None = None
) -> TrainingScreen:
    """The screen where it can repaint; plain lines elsewhere or if asked for.

    Args:
        console: where to show.
        plain: whether plain lines were asked for.
        progress: where the run is; the screen folds the records to come into it.
        folder: the run, whose findings are then shown; None shows none.
    """
    # Some CI services give their jobs a terminal, and keep every repaint in the log.
    still = not console.is_terminal or console.is_dumb_terminal or bool(os.environ.get("CI"))
    if plain or still:
        return PlainScreen(console)
    return LiveScreen(console, progress=progress, folder=folder)


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


class LiveScreen:
    """Lines that repaint in place; evaluations stay above them."""

    def __init__(self, console: Console, *, progress: RunProgress, folder: Path | None) -> None:
        self.panel = Panel(progress)
        self.progress = progress
        self.aside = DiagnosisAside(folder) if folder is not None else None
        self.live = NarrowingLive(self.panel, console)

    def __enter__(self) -> Self:
        self.live.start(refresh=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.live.stop()
        if self.aside is not None:
            self.aside.close()

    def recorded(self, record: Record) -> None:
        """Takes a record into the panel; evaluations and what else happens once are printed above it."""
        self.progress.add(record)
        if record["kind"] in ("eval", "resume", "guard"):
            for line in log_lines(record):
                self.live.console.out(line, highlight=False)

    def stepped(self, step: int) -> None:
        """Moves the bar."""
        self.progress.step = step + 1
        if self.aside is not None:
            self.aside.look()
            if self.aside.document is not None:
                self.panel.findings = self.aside.document["findings"]


class Panel:
    """The lines of the screen, as wide as the terminal is at the moment.

    Attributes:
        progress: what they show.
        findings: the diagnosis so far, as the contract's documents, the worst first.
        cells: the width of each line that was painted last.
    """

    def __init__(self, progress: RunProgress) -> None:
        self.progress = progress
        self.findings: Sequence[dict[str, str]] = ()
        self.cells: Sequence[int] = ()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = min(options.max_width, WIDEST)
        ascii_only = options.ascii_only
        lines = [self._bar(width, ascii_only), self._loss(width, ascii_only), self._speed(width)]
        lines += [self._finding(finding) for finding in self.findings[:FINDINGS_SHOWN]]
        shown = [line for line in lines if line]
        for line in shown:
            line.truncate(width, overflow="ellipsis")
        self.cells = [line.cell_len for line in shown]
        yield Text("\n").join(shown)

    def _bar(self, width: int, ascii_only: bool) -> Text:
        progress = self.progress
        total = progress.max_iters
        if not total:
            return Text(f"step {progress.step:,}", style="bold")
        share = min(1.0, progress.step / total)
        left = progress.seconds_left
        head = f"step {progress.step:,}/{total:,} "
        tail = f" {units.percent(share)}"
        tail += f", {units.duration(left)} left" if left and progress.ending is None else ""
        room = max(0, width - len(head) - len(tail))
        done = int(share * room)
        full, empty = ("=", "-") if ascii_only else ("━", "─")
        return Text.assemble((head, "bold"), (full * done, "green"), (empty * (room - done), "dim"), tail)

    def _loss(self, width: int, ascii_only: bool) -> Text:
        train, best = self.progress.train, self.progress.best
        if train is None:
            return Text("waiting for the first step", style="dim") if self.progress.ending is None else Text()
        head = f"loss {number_text(train['loss_mean'], '.4f')} "
        tail = ""
        if best is not None:
            error = number(best.get("val_loss_standard_error"))
            margin = f" ± {error:.4f}" if error is not None else ""
            tail = f" best val {best['val_loss']:.4f}{margin} at {best['step']:,}"
        curve = sparkline(self.progress.losses.values, width - len(head) - len(tail), ascii_only=ascii_only)
        return Text.assemble((head, "bold"), (curve, "cyan"), tail)

    def _speed(self, width: int) -> Text:
        train = self.progress.train
        if train is None:
            return Text()
        parts = [
            f"{train['tokens_per_second']:,.0f} tokens/s",
            f"MFU {units.percent(train['mfu'])}",
            f"{units.duration(train['seconds'])} a step",
            f"learning rate {train['lr']:.2e}" if "lr" in train else "",
            f"gradient {number_text(train['grad_norm'], '.2f')}" if train.get("grad_norm") else "",
        ]
        line = ""
        for part in filter(None, parts):
            longer = f"{line} · {part}" if line else part
            if len(longer) > width:
                break
            line = longer
        return Text(line)

    def _finding(self, finding: dict[str, str]) -> Text:
        style, label = STYLES[Severity(finding["severity"])]
        text = finding["message"].replace("\n", " ")
        return Text.assemble((label, style), " ", (finding["id"], "bold"), " ", text)


class NarrowingLive(Live):
    """A live area that stays clean when the terminal is made narrower.

    Terminals break the lines on the screen anew when their width changes, so the area is then higher than
    it was painted; what is more is cleared before the next painting. (A terminal that cuts lines instead
    loses as many rows above the area.)
    """

    def __init__(self, panel: Panel, console: Console) -> None:
        super().__init__(
            panel, console=console, refresh_per_second=FRAMES_PER_SECOND, vertical_overflow="crop"
        )
        self.panel = panel

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        """Clears the rows that a narrower terminal made of the last painting."""
        width = max(1, self.console.width)
        more = sum(max(1, math.ceil(cells / width)) - 1 for cells in self.panel.cells)
        renderables = super().process_renderables(renderables)
        if more and renderables:
            clear = Control(*((ControlType.CURSOR_UP, 1), (ControlType.ERASE_IN_LINE, 2)) * more)
            # The first renderable is the cursor's way back to the top of what was painted.
            return [renderables[0], clear, *renderables[1:]]
        return renderables

"""The bar under which a corpus is prepared."""

import time
from collections.abc import Callable

from rich.console import Console
from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from gptwright import units
from gptwright.data.prepare import Progress


class ProgressBar:
    """A bar with megabytes and tokens a second and the time left; only on a terminal."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[speed]}"),
            TextColumn("left"),
            TimeRemainingColumn(compact=True),
            console=console,
            transient=True,
        )
        self._task = self._bar.add_task("reading", total=1, speed="")
        self._stage = ""
        self._began: tuple[float, int, int] = (0.0, 0, 0)

    def __enter__(self) -> "ProgressBar":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def show(self, progress: Progress) -> None:
        """Moves the bar."""
        if progress.stage != self._stage:
            self._stage = progress.stage
            self._began = (self._clock(), progress.done, progress.tokens)
            self._bar.reset(self._task, total=progress.total, description=progress.stage)
        self._bar.update(
            self._task, completed=progress.done, total=progress.total, speed=self._speed(progress)
        )

    def _speed(self, progress: Progress) -> str:
        began, done, tokens = self._began
        seconds = self._clock() - began
        if seconds < 1:
            return ""
        speed = f"{units.size((progress.done - done) / seconds)}/s"
        if progress.tokens > tokens:
            speed += f" {units.count((progress.tokens - tokens) / seconds)} tokens/s"
        return speed

"""The threads that keep the loggers of a run up to date, and the rule that none of them can hurt it.

Each view follows `metrics.jsonl` by itself: the training loop only wakes it, and never waits. A view that
fails is given up with one warning. At the end of the run views have a limited time for what is left.
"""

import importlib.util
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Protocol

from gptwright.config.schema import TrainConfig
from gptwright.record.follow import Follower
from gptwright.record.metrics import Record

# A wake-up is missed only by a process that writes into the run from elsewhere.
WAKE_SECONDS = 2.0
# W&B sends its last numbers at the end; without network it tries for long.
LAST_SECONDS = 60.0


class View(Protocol):
    """A logger: takes records in order."""

    def begin(self) -> None:
        """Forgets what came before."""

    def add(self, record: Record) -> None:
        """Takes a record."""

    def flush(self) -> None:
        """Lets others see what was taken."""

    def close(self) -> None:
        """Writes what is left."""


class ViewThread(threading.Thread):
    """One view in a thread of its own.

    Args:
        name: the logger, as a person knows it.
        open_view: imports the logger and makes the view; it may fail.
        metrics: the file to follow.
        from_end: begin with what is written from now on, instead of at the start.
        warn: told once if the view fails.
    """

    def __init__(
        self,
        name: str,
        open_view: Callable[[], View],
        *,
        metrics: Path,
        from_end: bool,
        warn: Callable[[str], None],
    ) -> None:
        super().__init__(name=f"gptwright-{name}", daemon=True)
        self.open_view = open_view
        self.follower = Follower(metrics)
        if from_end:
            # Here and not in the thread, before which the next record could be written.
            self.follower.skip_to_end()
        self.warn = warn
        self.news = threading.Event()
        self.ended = threading.Event()

    def run(self) -> None:
        """Follows the file until told to end."""
        try:
            self._follow()
        except Exception as error:
            self.warn(
                f"{self.name.removeprefix('gptwright-')} stopped: {error}."
                " The run goes on; metrics.jsonl has everything."
            )

    def _follow(self) -> None:
        view = self.open_view()
        view.begin()
        try:
            last = False
            while not last:
                self.news.wait(WAKE_SECONDS)
                self.news.clear()
                last = self.ended.is_set()
                self._take(view)
        finally:
            view.close()

    def _take(self, view: View) -> None:
        more = True
        while more:
            news = self.follower.look()
            if news.restarted:
                view.begin()
            for record in news.records():
                view.add(record)
            more = news.more
        view.flush()


class Views:
    """A listener of a run that keeps its views up to date.

    Args:
        run: the run folder.
        config: the run's settings.
        warn: told if a view cannot be had or fails.
    """

    def __init__(self, run: Path, config: TrainConfig, warn: Callable[[str], None]) -> None:
        self.run = run
        self.warn = warn
        self.wanted = _wanted(run, config, warn)
        self.threads: Sequence[ViewThread] = ()

    def recorded(self, record: Record) -> None:
        """Wakes the views; the first record, which the file begins or goes on with, starts them."""
        if not self.threads:
            self.threads = [
                ViewThread(
                    name,
                    open_view,
                    metrics=self.run / "metrics.jsonl",
                    # W&B keeps what it was sent before the run was resumed.
                    from_end=name == "W&B" and record["kind"] == "resume" and (self.run / "wandb").is_dir(),
                    warn=self.warn,
                )
                for name, open_view in self.wanted.items()
            ]
            for thread in self.threads:
                thread.start()
        for thread in self.threads:
            thread.news.set()

    def stepped(self, step: int) -> None:
        """Views show records alone."""

    def close(self) -> None:
        """Gives the views a limited time for what is left."""
        for thread in self.threads:
            thread.ended.set()
            thread.news.set()
        until = time.monotonic() + LAST_SECONDS
        for thread in self.threads:
            thread.join(max(0.0, until - time.monotonic()))
            if thread.is_alive():
                name = thread.name.removeprefix("gptwright-")
                self.warn(f"{name} did not end within {LAST_SECONDS:.0f} s; metrics.jsonl has everything")


def _wanted(run: Path, config: TrainConfig, warn: Callable[[str], None]) -> dict[str, Callable[[], View]]:
    """The views that the settings ask for and that can be had."""
    wanted: dict[str, Callable[[], View]] = {}
    if config.tensorboard and _installed("tensorboard", "tensorboard", warn):
        wanted["TensorBoard"] = lambda: _tensorboard(run)
    if config.wandb_log and _installed("wandb", "wandb_log", warn) and _may_log_in(warn):
        wanted["W&B"] = lambda: _wandb(run, config)
    return wanted


def _installed(package: str, setting: str, warn: Callable[[str], None]) -> bool:
    there = importlib.util.find_spec(package) is not None
    if not there:
        warn(
            f"{setting} = True has no effect without the package {package}: pip install 'gptwright[log]'."
            " metrics.jsonl has everything, and a resumed run catches up."
        )
    return there


def _may_log_in(warn: Callable[[str], None]) -> bool:
    """W&B would ask for an account in the middle of the run; so that is asked before it."""
    if os.environ.get("WANDB_MODE", "online") != "online" or os.environ.get("WANDB_API_KEY"):
        return True
    import wandb

    if not wandb.login(prompt=False):
        warn("wandb_log = True needs an account: `wandb login`, or WANDB_MODE=offline for files alone.")
        return False
    return True


def _tensorboard(run: Path) -> View:
    from gptwright.report.loggers.tensorboard import TensorBoardView

    return TensorBoardView(run / "tensorboard")


def _wandb(run: Path, config: TrainConfig) -> View:
    from gptwright.report.loggers.wandb import WandbView

    return WandbView(
        run,
        project=config.wandb_project,
        name=config.wandb_run_name or run.resolve().name,
        config=asdict(config),
    )

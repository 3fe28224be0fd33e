"""A trainer as a whole process: what it printed, when, how long it took and how much memory it held.

All trainers print nanoGPT's line shapes, so one parser reads all. Times are those of the lines' arrival,
which includes start-up, compilation and evaluation.
"""

import contextlib
import os
import re
import statistics
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from gptwright.errors import RunFailedError

STEP = re.compile(r"^iter (\d+): loss ([\d.]+), time ([\d.]+)ms")
EVALUATION = re.compile(r"^step (\d+): train loss ([\d.]+), val loss ([\d.]+)")
# Between two looks at a process's memory: a hundredth of the shortest workload.
LOOK_SECONDS = 0.05


class PeakOf:
    """Watches the resident memory of a process in a thread.

    What the system itself says of an ended child is not used: it counts the parent at the moment of the fork.
    """

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self._largest = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        with contextlib.suppress(psutil.Error):
            while not self._ended.wait(LOOK_SECONDS):
                self._largest = max(self._largest, self._process.memory_info().rss)

    def stop(self) -> int:
        """The most that was seen, in bytes."""
        self._ended.set()
        self._thread.join()
        return self._largest


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """One training, from process start to end.

    Attributes:
        wall_seconds: of the whole process.
        step_seconds: median over the steps that count.
        val_loss: the last that was printed.
        peak_bytes: most resident memory of the process.
    """

    wall_seconds: float
    step_seconds: float
    val_loss: float
    peak_bytes: int


def run_trainer(command: Sequence[str], *, folder: Path, warm_up: int) -> Finished:
    """Runs a trainer to its end.

    Args:
        command: the process.
        folder: where it runs.
        warm_up: steps before this one are not timed.

    Raises:
        RunFailedError: it failed, or printed no step or no evaluation.
    """
    begin = time.perf_counter()
    with subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        peak = PeakOf(process.pid)
        lines = list(process.stdout)
        peak_bytes = peak.stop()
    wall_seconds = time.perf_counter() - begin
    text = "".join(lines)
    times = step_times(lines, warm_up)
    losses = [float(found[3]) for line in lines if (found := EVALUATION.match(line))]
    if process.returncode or not times or not losses:
        raise RunFailedError(
            f"{' '.join(command)} ended with {process.returncode}, {len(times)} timed steps and"
            f" {len(losses)} evaluations",
            why=text[-1500:].strip() or "it printed nothing",
            fix="run it by hand in its own folder",
        )
    return Finished(
        wall_seconds=wall_seconds,
        step_seconds=statistics.median(times),
        val_loss=losses[-1],
        peak_bytes=peak_bytes,
    )


def step_times(lines: Sequence[str], warm_up: int) -> list[float]:
    """Seconds of each printed step from `warm_up` on; those that an evaluation fell into are left out."""
    evaluated = {int(found[1]) for line in lines if (found := EVALUATION.match(line))}
    steps = [found for line in lines if (found := STEP.match(line))]
    return [float(s[3]) / 1e3 for s in steps if int(s[1]) >= warm_up and int(s[1]) not in evaluated]

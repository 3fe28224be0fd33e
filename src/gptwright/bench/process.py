"""A trainer as a whole process: what it printed, when, how long it took and how much memory it held.

All trainers print nanoGPT's line shapes, so one parser reads all. Times are those of the lines' arrival,
which includes start-up, compilation and evaluation. A process can be given an end: so many seconds, or the
line of a step after which nothing is wanted of it. It and all that it started are killed then.
"""

import contextlib
import os
import re
import signal
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from gptwright.errors import RunFailedError

STEP = re.compile(r"^iter (\d+): loss ([\d.]+), time ([\d.]+)ms")
EVALUATION = re.compile(r"^step (\d+): train loss ([\d.]+), val loss ([\d.]+)")
# Between two looks at memory: a hundredth of the shortest workload.
LOOK_SECONDS = 0.05


class PeakOf:
    """Watches a number of bytes in a thread and keeps the largest.

    Args:
        look: says it now; a process that is gone may raise psutil's error.
    """

    def __init__(self, look: Callable[[], int]) -> None:
        self._look = look
        self._largest = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        with contextlib.suppress(psutil.Error):
            while not self._ended.wait(LOOK_SECONDS):
                self._largest = max(self._largest, self._look())

    def stop(self) -> int:
        """The most that was seen, in bytes."""
        self._ended.set()
        self._thread.join()
        return self._largest


def resident_memory_of(pid: int) -> Callable[[], int]:
    """Looks at the resident memory of a process.

    What the system itself says of an ended child is not used: it counts the parent at the moment of the fork.
    """
    process = psutil.Process(pid)
    return lambda: int(process.memory_info().rss)


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """A process from its start to its end.

    Attributes:
        status: its exit status.
        out_of_time: whether it was killed because its seconds were over.
        wall_seconds: of the whole process.
        lines: what it printed, with the seconds from its start to each line's arrival.
        peak_bytes: most resident memory of the process.
        device_peak_bytes: the most that `device_memory` said meanwhile; None without one.
    """

    status: int
    out_of_time: bool
    wall_seconds: float
    lines: tuple[tuple[float, str], ...]
    peak_bytes: int
    device_peak_bytes: int | None

    @property
    def text(self) -> str:
        """All lines."""
        return "".join(line for _, line in self.lines)


def watch(
    command: Sequence[str],
    *,
    folder: Path,
    seconds: float | None = None,
    last_step: int | None = None,
    device_memory: Callable[[], int] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Watched:
    """Runs a process to its end, or to the end that it is given.

    Args:
        command: the process.
        folder: where it runs.
        seconds: after which it is killed.
        last_step: once its line has arrived it is killed: nothing that comes after is wanted.
        device_memory: bytes in use on a device, looked at all the time.
        environment: variables beside this process's own.
    """
    begin = time.perf_counter()
    process = _start(command, folder, environment or {})
    assert process.stdout is not None
    peaks = [PeakOf(resident_memory_of(process.pid))]
    if device_memory is not None:
        peaks.append(PeakOf(device_memory))
    lines = []
    try:
        with _killed_after(seconds, process) as out_of_time:
            for line in process.stdout:
                lines.append((time.perf_counter() - begin, line))
                found = STEP.match(line)
                if found and last_step is not None and int(found[1]) >= last_step:
                    break
            else:
                process.wait()
    finally:
        seen = [peak.stop() for peak in peaks]
        status = _end(process)
    return Watched(
        status=status,
        out_of_time=out_of_time.is_set(),
        wall_seconds=time.perf_counter() - begin,
        lines=tuple(lines),
        peak_bytes=seen[0],
        device_peak_bytes=seen[1] if device_memory is not None else None,
    )


def _start(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONUNBUFFERED": "1", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        # With all that it starts it is one group, which can be ended whole: a compiler's helpers too.
        start_new_session=True,
    )


@contextlib.contextmanager
def _killed_after(seconds: float | None, process: subprocess.Popen[str]) -> Iterator[threading.Event]:
    """Kills a process once its seconds are over, if it has an end; the event says that it was."""
    over = threading.Event()
    if seconds is None:
        yield over
        return

    def end_it() -> None:
        over.set()
        _kill(process)

    alarm = threading.Timer(seconds, end_it)
    alarm.start()
    try:
        yield over
    finally:
        alarm.cancel()


def _end(process: subprocess.Popen[str]) -> int:
    """Kills a process unless it has ended, and gives its exit status."""
    if process.poll() is None:
        _kill(process)
    if process.stdout is not None:
        process.stdout.close()
    return process.wait()


def _kill(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()


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
    done = watch(command, folder=folder)
    lines = [line for _, line in done.lines]
    times = step_times(lines, warm_up)
    losses = [float(found[3]) for line in lines if (found := EVALUATION.match(line))]
    if done.status or not times or not losses:
        raise RunFailedError(
            f"{' '.join(command)} ended with {done.status}, {len(times)} timed steps and"
            f" {len(losses)} evaluations",
            why=done.text[-1500:].strip() or "it printed nothing",
            fix="run it by hand in its own folder",
        )
    return Finished(
        wall_seconds=done.wall_seconds,
        step_seconds=statistics.median(times),
        val_loss=losses[-1],
        peak_bytes=done.peak_bytes,
    )


def step_times(lines: Sequence[str], warm_up: int) -> list[float]:
    """Seconds of each printed step from `warm_up` on; those that an evaluation fell into are left out."""
    evaluated = {int(found[1]) for line in lines if (found := EVALUATION.match(line))}
    steps = [found for line in lines if (found := STEP.match(line))]
    return [float(s[3]) / 1e3 for s in steps if int(s[1]) >= warm_up and int(s[1]) not in evaluated]

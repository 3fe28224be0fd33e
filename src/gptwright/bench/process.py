"""A trainer as a whole process: what it printed, when, how long it took and how much memory it held.

Both trainers print nanoGPT's line shapes, so one parser reads both. Times are those of the lines' arrival,
which includes start-up, compilation and evaluation.
"""

import os
import re
import statistics
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gptwright.errors import RunFailedError

STEP = re.compile(r"^iter (\d+): loss ([\d.]+), time ([\d.]+)ms")
EVALUATION = re.compile(r"^step (\d+): train loss ([\d.]+), val loss ([\d.]+)")
KILOBYTE = 1024


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


def run_trainer(
    command: Sequence[str], *, folder: Path, warm_up: int, environment: Mapping[str, str] | None = None
) -> Finished:
    """Runs a trainer to its end.

    Args:
        command: the process.
        folder: where it runs.
        warm_up: steps before this one are not timed.
        environment: variables to set beside those there are.

    Raises:
        RunFailedError: it failed, or printed no step or no evaluation.
    """
    begin = time.perf_counter()
    with subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONUNBUFFERED": "1", **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        lines = list(process.stdout)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
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
        peak_bytes=used.ru_maxrss * KILOBYTE,
    )


def step_times(lines: Sequence[str], warm_up: int) -> list[float]:
    """Seconds of each printed step from `warm_up` on; those that an evaluation fell into are left out."""
    evaluated = {int(found[1]) for line in lines if (found := EVALUATION.match(line))}
    steps = [found for line in lines if (found := STEP.match(line))]
    return [float(s[3]) / 1e3 for s in steps if int(s[1]) >= warm_up and int(s[1]) not in evaluated]

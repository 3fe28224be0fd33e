"""How many threads a CPU computes with: a run, an evaluation, a model that speaks.

torch takes all cores, and its threads spin while they wait for each other. That is best on a quiet machine.
Beside another busy process one of them waits for a core, the others for it, and a step takes four to twenty
times as long (docs/lab-notes.md). So where others are busy, a piece of a step is timed with all threads and
with fewer, and the quickest is taken. On a quiet machine nothing is timed, so a seed means the same run.

A resumed run keeps the threads that it had on this device: another number adds the same numbers in another
order, and the weights would not be those of a run that nothing happened to.

Cost: nothing on a quiet machine; else short passes of each number, a second for a small model's training.
"""

import functools
import math
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psutil
import torch

from gptwright.facts import Fact, Origin
from gptwright.model.gpt import GPT
from gptwright.train.precision import Precision

# Cores that others may use before it is worth a measurement; a desktop at rest uses a tenth of one.
QUIET = 0.25
# Fewer threads must be quicker by so much: the load may be gone in a minute.
WORTH = 1.15
# What is timed: a pass over some hundred tokens, a few times, and for at least so many seconds.
MOST_TOKENS, LONGEST_CONTEXT, PASSES, LEAST_SECONDS = 1024, 256, 3, 0.05


class OthersLoad:
    """What other processes use of this machine's cores, from when it was made to when it is asked."""

    def __init__(self) -> None:
        self._begin = self._now()

    def cores(self) -> float:
        """Cores in use by others, on average."""
        wall, busy, own = (now - begin for now, begin in zip(self._now(), self._begin, strict=True))
        return max(0.0, (busy - own) / wall) if wall > 0 else 0.0

    @staticmethod
    def _now() -> tuple[float, float, float]:
        times = psutil.cpu_times()
        # Time stolen by other guests of the same host is no load that fewer threads would mend.
        busy = times.user + times.system + getattr(times, "nice", 0.0)
        return time.perf_counter(), busy, time.process_time()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """What is done again and again, and so timed.

    Attributes:
        rows: sequences at a time.
        context: tokens of each; fewer are timed where it is long.
        learns: whether a backward pass follows.
    """

    rows: int
    context: int
    learns: bool


def choose_threads(
    model: GPT,
    precision: Precision,
    load: OthersLoad | None,
    work: Pass,
    *,
    asked: int = 0,
    before: int | None = None,
) -> Fact | None:
    """Sets the number of threads and says why; None where the device is no CPU.

    Args:
        model: what computes.
        precision: where and in which dtype.
        load: of other processes since this one began to start; None where the others are of the same run.
        work: what it does with the model.
        asked: the setting; 0 leaves the choice to this.
        before: threads of the run that is resumed, on this device.
    """
    if precision.device.type != "cpu":
        return None
    most = available_threads()
    if asked:
        return _set(asked, Origin.CONFIGURED, "asked for")
    if before is not None and before <= most:
        return _set(before, Origin.LOGGED, "as this run had; --threads=N for another number")
    if load is None or most == 1:
        return _set(most, Origin.MEASURED, "all that this process may use")
    others = load.cores()
    if others < QUIET:
        return _set(most, Origin.MEASURED, f"all there are; others use {others:.1f} cores")
    tried = {threads: seconds_of(model, precision, threads, work) for threads in _candidates(most, others)}
    quickest = min(tried, key=lambda threads: tried[threads])
    if tried[quickest] * WORTH > tried[most]:
        quickest = most
    times = ", ".join(f"{seconds * 1000:.0f} ms with {threads}" for threads, seconds in tried.items())
    return _set(quickest, Origin.MEASURED, f"others use {others:.1f} cores; a short pass took {times}")


@functools.cache
def available_threads() -> int:
    """Threads that torch had before the first choice: one run's choice is not the next one's limit."""
    return torch.get_num_threads()


def seconds_of(model: GPT, precision: Precision, threads: int, work: Pass) -> float:
    """The median time of a pass over a few rows; weights and draws stay as they are."""
    context = min(work.context, LONGEST_CONTEXT)
    rows = max(1, min(work.rows, MOST_TOKENS // context))
    tokens_BT = torch.zeros((rows, context), dtype=torch.int64)
    seconds: list[float] = []
    with using_threads(threads), torch.random.fork_rng(devices=[]):
        while len(seconds) < PASSES or sum(seconds) < LEAST_SECONDS:
            begin = time.perf_counter()
            with torch.set_grad_enabled(work.learns), precision.autocast():
                loss = model(tokens_BT, tokens_BT)
            if work.learns:
                loss.backward()
            seconds.append(time.perf_counter() - begin)
    model.zero_grad(set_to_none=True)
    return statistics.median(seconds)


@contextmanager
def using_threads(count: int) -> Iterator[None]:
    """torch with so many threads, inside."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _candidates(most: int, others: float) -> list[int]:
    """All threads, as many as there are cores left, and half."""
    left = max(1, most - math.ceil(others - QUIET))
    return sorted({most, left, max(1, most // 2)}, reverse=True)


def _set(threads: int, origin: Origin, reason: str) -> Fact:
    torch.set_num_threads(threads)
    return Fact(name="threads", value=threads, text=str(threads), origin=origin, reason=reason)

"""How far a run is, folded from its records one at a time: what every live view of a run shows.

Nothing is kept that grows with the run, so a view may follow two hundred of them. The time left is the usual
time of a step for the steps to come and that of an evaluation for the evaluations to come, each as recorded.
"""

import statistics
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from gptwright.record.metrics import Record

# Steps change their speed with the machine's other work; the last lines say what is usual now.
RECENT = 50
# A curve a few centimetres wide has no more points than this; beyond, neighbours become their mean.
POINTS = 128


class Thinned:
    """A curve of any length in at most `POINTS` means of equally many neighbours each."""

    def __init__(self) -> None:
        self.means: list[float] = []
        self.share = 1
        self._sum, self._held = 0.0, 0

    def add(self, value: float) -> None:
        """Adds the next value."""
        self._sum += value
        self._held += 1
        if self._held < self.share:
            return
        self.means.append(self._sum / self._held)
        self._sum, self._held = 0.0, 0
        if len(self.means) == POINTS:
            self.means = [(a + b) / 2 for a, b in zip(self.means[::2], self.means[1::2], strict=True)]
            self.share *= 2

    @property
    def values(self) -> list[float]:
        """The means, with that of a bin which is not yet full."""
        return [*self.means, self._sum / self._held] if self._held else list(self.means)


@dataclass(slots=True)
class RunProgress:
    """A run as its records so far tell it.

    Attributes:
        max_iters: steps planned; None if nothing said it.
        eval_interval: steps between evaluations; None if nothing said it.
        step: updates made.
        train: the last training line.
        evaluation: the last evaluation.
        best: the evaluation with the lowest validation loss.
        ending: `finished`, `stopped` or `failed`; None while the run goes on.
        reason: why it failed.
        started: time of the first record, in seconds since 1970.
        updated: time of the last one.
        trained_seconds: spent in steps and evaluations, as recorded.
        losses: mean losses of the training lines, thinned.
    """

    max_iters: int | None = None
    eval_interval: int | None = None
    step: int = 0
    train: Record | None = None
    evaluation: Record | None = None
    best: Record | None = None
    ending: str | None = None
    reason: str | None = None
    started: float | None = None
    updated: float | None = None
    trained_seconds: float = 0.0
    losses: Thinned = field(default_factory=Thinned)
    _step_seconds: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT))
    _gaps: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT))

    def add(self, record: Record) -> None:
        """Takes the next record."""
        time = number(record.get("time"))
        if time is not None:
            if self.updated is not None and time >= self.updated:
                self._gaps.append(time - self.updated)
            self.started = time if self.started is None else self.started
            self.updated = time
        match record.get("kind"):
            case "start" | "resume":
                self.ending = self.reason = None
                self.step = whole(record.get("step")) or 0
                self.max_iters = whole(record.get("max_iters")) or self.max_iters
                # Between two processes lies no interval of either.
                self._gaps.clear()
            case "train":
                self._train(record)
            case "eval":
                self._evaluation(record)
            case "end":
                self.ending = str(record.get("state"))
                self.reason = str(record["reason"]) if "reason" in record else None

    def _train(self, record: Record) -> None:
        before, self.train = self.step, record
        self.step = (whole(record.get("step")) or 0) + 1
        seconds = number(record.get("seconds"))
        if seconds is not None:
            self._step_seconds.append(seconds)
            self.trained_seconds += seconds * max(0, self.step - before)
        loss = number(record.get("loss_mean"))
        if loss is not None:
            self.losses.add(loss)

    def _evaluation(self, record: Record) -> None:
        self.evaluation = record
        self.step = max(self.step, whole(record.get("step")) or 0)
        self.trained_seconds += number(record.get("seconds")) or 0.0
        loss = number(record.get("val_loss"))
        best = number(self.best.get("val_loss")) if self.best is not None else None
        if loss is not None and (best is None or loss < best):
            self.best = record

    @property
    def usual_gap(self) -> float | None:
        """Median seconds between two records; None before the third."""
        return statistics.median(self._gaps) if len(self._gaps) > 1 else None

    @property
    def longest_gap(self) -> float:
        """The longest of the recent gaps, in seconds: usually an evaluation."""
        return max(self._gaps, default=0.0)

    @property
    def seconds_left(self) -> float | None:
        """Until `max_iters`, evaluations included; None where that cannot be told."""
        if self.max_iters is None or not self._step_seconds:
            return None
        steps = max(0, self.max_iters - self.step)
        seconds = steps * statistics.median(self._step_seconds)
        lasted = number(self.evaluation.get("seconds")) if self.evaluation is not None else None
        if lasted is not None and self.eval_interval:
            due = self.max_iters // self.eval_interval - self.step // self.eval_interval
            seconds += lasted * max(0, due)
        return seconds


def number(value: Any) -> float | None:
    """A finite number of a record; None for anything else (NaN and infinity are stored as their names)."""
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if plain and abs(value) < 1e300 else None


def whole(value: Any) -> int | None:
    """A count of a record; None for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1e15 else None

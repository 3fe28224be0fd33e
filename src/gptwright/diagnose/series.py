"""The loss curves of a run as arrays: finite values, one a step, in order."""

from dataclasses import dataclass

import numpy as np

from gptwright.diagnose.reading import Reading, once
from gptwright.facts import Fact, logged
from gptwright.record.arrays import Booleans, Floats, Integers


@dataclass(frozen=True, slots=True)
class Series:
    """One logged quantity; arrays of one length, steps rising.

    Attributes:
        name: the quantity's standard term.
        step: optimizer steps.
        value: finite values.
        line: lines of the log.
    """

    name: str
    step: Integers
    value: Floats
    line: Integers

    def __len__(self) -> int:
        return len(self.step)

    @property
    def best(self) -> int | None:
        """The row of the lowest value, the first of equal ones; None where there is none."""
        return int(self.value.argmin()) if len(self) else None

    def fact(self, row: int) -> Fact:
        """The value in a row, with its line."""
        unit = "bits/byte" if self.name == "val_bpb" else "nats"
        return logged(self.name, float(self.value[row]), int(self.line[row]), unit=unit)

    def value_at(self, steps: Integers) -> Floats:
        """The values at steps, interpolated between rows."""
        return np.interp(steps, self.step, self.value)

    def part(self, rows: Booleans) -> "Series":
        """The rows that a mask selects."""
        return Series(self.name, self.step[rows], self.value[rows], self.line[rows])

    def after(self, step: float) -> "Series":
        """The rows later than a step."""
        return self.part(self.step > step)


def series_of(name: str, step: Integers, value: Floats, line: Integers) -> Series:
    """The finite values; where a resumed run repeats a step, the later line counts."""
    finite = np.flatnonzero(np.isfinite(value))
    rows = finite[one_a_step(step[finite])]
    return Series(name, step[rows], value[rows], line[rows])


def one_a_step(step: Integers) -> Integers:
    """Rows in the order of their steps; of those with the same step the last."""
    if len(step) < 2 or bool((np.diff(step) > 0).all()):
        return np.arange(len(step))
    # Reversed, `unique` finds the last line of every step.
    _, last = np.unique(step[::-1], return_index=True)
    rows: Integers = len(step) - 1 - last
    return rows


@once
def train_loss(reading: Reading) -> Series:
    """Losses of training lines."""
    train = reading.train
    if train is None:
        return _empty("train_loss")
    return series_of("train_loss", train.step, train.loss, train.line)


@once
def eval_train_loss(reading: Reading) -> Series:
    """Eval-mode losses on training data."""
    evals = reading.evals
    if evals is None:
        return _empty("eval_train_loss")
    return series_of("eval_train_loss", evals.step, evals.train_loss, evals.line)


@once
def val_loss(reading: Reading) -> Series:
    """Validation losses."""
    evals = reading.evals
    if evals is None:
        return _empty("val_loss")
    return series_of("val_loss", evals.step, evals.val_loss, evals.line)


def val_curve(reading: Reading) -> Series:
    """Validation in nats a token, or in bits a byte where a trainer prints only those."""
    losses, evals = val_loss(reading), reading.evals
    if len(losses) or evals is None:
        return losses
    return series_of("val_bpb", evals.step, evals.val_bpb, evals.line)


def _empty(name: str) -> Series:
    nothing = np.zeros(0, dtype=np.int64)
    return Series(name, nothing, np.zeros(0, dtype=np.float64), nothing)

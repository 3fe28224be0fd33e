"""The loss curves of a run as arrays: finite values, one a step, in order."""

from dataclasses import dataclass, replace

import numpy as np

from gptwright.diagnose.reading import Reading, once
from gptwright.facts import Fact, logged
from gptwright.record.arrays import Booleans, Floats, Integers
from gptwright.record.evidence import IN_BITS, OF_CHARACTERS


@dataclass(frozen=True, slots=True)
class Series:
    """One logged quantity; arrays of one length, steps rising.

    Attributes:
        name: the quantity's standard term.
        step: optimizer steps.
        value: finite values.
        line: lines of the log.
        printed: in which other unit its values were printed; empty where in this one.
    """

    name: str
    step: Integers
    value: Floats
    line: Integers
    printed: str = ""

    def __len__(self) -> int:
        return len(self.step)

    @property
    def best(self) -> int | None:
        """The row of the lowest value, the first of equal ones; None where there is none."""
        return int(self.value.argmin()) if len(self) else None

    def fact(self, row: int) -> Fact:
        """The value in a row, with its line."""
        unit = "bits/byte" if self.name == "val_bpb" else "nats"
        fact = logged(self.name, float(self.value[row]), int(self.line[row]), unit=unit)
        return replace(fact, reason=f"{fact.reason}, {self.printed}") if self.printed else fact

    def value_at(self, steps: Integers) -> Floats:
        """The values at steps, interpolated between rows."""
        return np.interp(steps, self.step, self.value)

    def part(self, rows: Booleans) -> "Series":
        """The rows that a mask selects."""
        return Series(self.name, self.step[rows], self.value[rows], self.line[rows], self.printed)

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
    return _in_nats(reading, series_of("train_loss", train.step, train.loss, train.line))


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
    return _in_nats(reading, series_of("val_loss", evals.step, evals.val_loss, evals.line))


@once
def every_val_loss(reading: Reading) -> Series:
    """All validation losses in the order of their steps, also those of a step that a resume repeats."""
    evals = reading.evals
    if evals is None:
        return _empty("val_loss")
    finite = np.flatnonzero(np.isfinite(evals.val_loss))
    rows = finite[np.argsort(evals.step[finite], kind="stable")]
    return Series("val_loss", evals.step[rows], evals.val_loss[rows], evals.line[rows])


def _in_nats(reading: Reading, series: Series) -> Series:
    """A curve with what its log printed in place of nats."""
    hazards = reading.log.hazards if reading.log is not None else {}
    printed = next((each for each in (IN_BITS, OF_CHARACTERS) if hazards.get(each)), "")
    return replace(series, printed=printed)


def val_curve(reading: Reading) -> Series:
    """Validation in nats a token, or in bits a byte where a trainer prints only those."""
    losses, evals = val_loss(reading), reading.evals
    if len(losses) or evals is None:
        return losses
    return series_of("val_bpb", evals.step, evals.val_bpb, evals.line)


def _empty(name: str) -> Series:
    nothing = np.zeros(0, dtype=np.int64)
    return Series(name, nothing, np.zeros(0, dtype=np.float64), nothing)

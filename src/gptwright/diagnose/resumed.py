"""Where a run was resumed, and whether it went on from where it was.

Evaluations on both sides of a resume at the same step are of the same weights and must be the same loss.
Where there are none, lines of training tell: medians of ten, which dropout lifts on both sides alike; against
an evaluation, which has no dropout, only where the run has none either.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from gptwright.arithmetic.trend import noise_of
from gptwright.diagnose.evaluation import standard_error
from gptwright.diagnose.reading import Reading, once
from gptwright.facts import Fact, logged
from gptwright.record.arrays import Floats, Integers
from gptwright.record.evidence import Event, EventKind

# Learning rates of a schedule change by a few percent a line; half as much again is another schedule.
RATE_JUMP = 1.5
# What raises the rate within so many lines behind a resume is what explains their loss.
RAISED_WITHIN = 5
# Lines on either side of a resume whose medians are compared, and how many there have to be.
BESIDE, LEAST_BESIDE = 10, 5
# Lines that tell what one scatters by.
SCATTER_FROM = 40
# A loss that was carried on lies within the noise of two medians; half of that noise may be a matter of the
# data.
BEYOND, LEAST_JUMP = 6.0, 0.1
# Where nothing says how an evaluation scatters: three times what twenty windows do.
LEAST_UNSURE_JUMP = 0.3
# Neither dropout nor memorized text moves a loss by a nat between two places of a run that lie together.
BEYOND_ANY_REASON = 1.0


@dataclass(frozen=True, slots=True)
class ResumeJump:
    """A loss that was higher behind a resume than before it.

    Attributes:
        event: the line that says so, or where the step goes back.
        quantity: what was compared, as the beginning of a sentence.
        level_before: nats.
        level_after: nats.
        before: the value before, with its line.
        after: the value behind, with its line.
        step: of the first value behind.
        back: the step at which it was as low again; None if it was not.
        last: the last step that was looked at.
        same_weights: both are evaluations at one step.
        weights_are_right: evaluations at one step agree, and what follows is higher.
    """

    event: Event
    quantity: str
    level_before: float
    level_after: float
    before: Fact
    after: Fact
    step: int
    back: int | None
    last: int
    same_weights: bool = False
    weights_are_right: bool = False

    @property
    def rise(self) -> float:
        """By how much the loss is higher, in nats."""
        return self.level_after - self.level_before


@dataclass(frozen=True, slots=True)
class Evaluated:
    """Evaluations of one kind of text on both sides of a resume.

    Attributes:
        quantity: what they are, as the beginning of a sentence.
        name: the column's standard term.
        value: finite losses of the whole log, in its order.
        step: of each.
        line: of each.
        behind: the row of the first one behind the resume.
    """

    quantity: str
    name: str
    value: Floats
    step: Integers
    line: Integers
    behind: int

    @property
    def twin(self) -> int | None:
        """The row before the resume at the step of the first one behind; None where there is none."""
        rows = np.flatnonzero(self.step[: self.behind] == self.step[self.behind])
        return int(rows[-1]) if len(rows) else None

    def fact(self, row: int) -> Fact:
        """The loss in a row, with its line."""
        return logged(self.name, float(self.value[row]), int(self.line[row]), unit="nats")


class RateJump(NamedTuple):
    """A sharp rise of the printed learning rate: the training rows beside it, and the step of the later."""

    before: int
    after: int
    step: int


@once
def rate_jumps(reading: Reading) -> list[RateJump]:
    """Where the printed learning rate rose sharply after it had fallen."""
    train = reading.train
    if train is None:
        return []
    known = np.flatnonzero(np.isfinite(train.learning_rate))
    rates = train.learning_rate[known]
    jumps = []
    begin, highest, falling = 0, 0.0, False
    # Only a rise by the factor can be a jump, and a schedule has few of them.
    for i in np.flatnonzero(rates[1:] > RATE_JUMP * rates[:-1]) + 1:
        peaks = np.maximum.accumulate(np.append(highest, rates[begin:i]))
        falling = falling or bool((rates[begin:i] < 0.98 * peaks[1:]).any())
        begin, highest = int(i), float(peaks[-1])
        # 2 % of the highest rate: below it, a rise of any factor does nothing.
        if falling and rates[i] > RATE_JUMP * rates[i - 1] + 0.02 * highest:
            jumps.append(RateJump(int(known[i - 1]), int(known[i]), int(train.step[known[i]])))
            highest, falling = 0.0, False
    return jumps


@once
def jump_of_a_resume(reading: Reading) -> ResumeJump | None:
    """The largest rise of the loss over a resume, beyond the noise; None if there is none."""
    log = reading.log
    if log is None:
        return None
    jumps = [
        jump
        for event in log.events
        if event.kind is EventKind.RESUME and (jump := _jump_at(reading, event)) is not None
    ]
    return max(jumps, key=lambda jump: jump.rise, default=None)


def _jump_at(reading: Reading, event: Event) -> ResumeJump | None:
    """What stands out at one resume; evaluations of the same weights before all else."""
    evaluated = list(_evaluated(reading, event))
    twins = [(each, twin) for each in evaluated if (twin := each.twin) is not None]
    for each, twin in twins:
        if (jump := _between_evaluations(reading, event, each, twin)) is not None:
            return jump
    # A schedule that was set back explains what follows it.
    if _rate_is_raised(reading, event):
        return None
    right = bool(twins)
    jump = _between_lines(reading, event, right) or _from_evaluation_to_lines(reading, event, right)
    if jump is not None or twins:
        return jump
    later = (_between_evaluations(reading, event, each, each.behind - 1) for each in evaluated)
    return next((jump for jump in later if jump is not None), None)


def _evaluated(reading: Reading, event: Event) -> Iterator[Evaluated]:
    """Evaluations of training text and of validation that stand on both sides of a resume."""
    log, evals = reading.log, reading.evals
    if log is None or evals is None:
        return
    for quantity, name, column in (
        ("The evaluated training loss", "eval_train_loss", evals.train_loss),
        ("Validation", "val_loss", evals.val_loss),
    ):
        rows = np.flatnonzero(np.isfinite(column))
        behind = int(np.searchsorted(log.moment(evals.line[rows]), log.moment(event.line)))
        if 0 < behind < len(rows):
            yield Evaluated(quantity, name, column[rows], evals.step[rows], evals.line[rows], behind)


def _between_evaluations(
    reading: Reading, event: Event, evaluated: Evaluated, before: int
) -> ResumeJump | None:
    """The rise from the evaluation in row `before` to the first one behind a resume."""
    behind, value = evaluated.behind, evaluated.value
    same = bool(evaluated.step[before] == evaluated.step[behind])
    error = standard_error(reading)
    least = LEAST_UNSURE_JUMP if error is None else max(LEAST_JUMP, BEYOND * np.sqrt(2) * error)
    if not same and evaluated.name == "val_loss":
        least = BEYOND_ANY_REASON
    if value[behind] - value[before] <= least:
        return None
    back = np.flatnonzero(value[behind:] <= value[before])
    return ResumeJump(
        event,
        evaluated.quantity,
        float(value[before]),
        float(value[behind]),
        evaluated.fact(before),
        evaluated.fact(behind),
        step=int(evaluated.step[behind]),
        back=int(evaluated.step[behind + back[0]]) if len(back) else None,
        last=int(evaluated.step[-1]),
        same_weights=same,
    )


def _rate_is_raised(reading: Reading, event: Event) -> bool:
    """Whether the printed rate goes up within a few lines behind a resume."""
    first = _row_behind(reading, event)
    return any(first <= jump.after < first + RAISED_WITHIN for jump in rate_jumps(reading))


def _row_behind(reading: Reading, event: Event) -> int:
    """The first training row behind an event."""
    log = reading.log
    return int(np.searchsorted(log.moment(log.train.line), log.moment(event.line))) if log is not None else 0


@once
def _rows_with_a_loss(reading: Reading) -> Integers:
    train = reading.train
    return np.flatnonzero(np.isfinite(train.loss)) if train is not None else np.zeros(0, np.int64)


def _parted(reading: Reading, event: Event) -> tuple[Integers, Integers]:
    """Rows of training lines with a loss before an event and behind it."""
    rows = _rows_with_a_loss(reading)
    cut = int(np.searchsorted(rows, _row_behind(reading, event)))
    return rows[:cut], rows[cut:]


def _between_lines(reading: Reading, event: Event, weights_are_right: bool) -> ResumeJump | None:
    """The rise of the median of ten lines over a resume."""
    train = reading.train
    if train is None:
        return None
    before, after = _parted(reading, event)
    if len(before) < LEAST_BESIDE or len(after) < LEAST_BESIDE:
        return None
    # A run that goes on from an older checkpoint is compared with what it was there.
    near = before[train.step[before] <= train.step[after[:BESIDE][-1]]]
    near = near[-BESIDE:] if len(near) >= LEAST_BESIDE else before[-BESIDE:]
    scatters = [
        noise.sd
        for rows in (before[-SCATTER_FROM:], after[:SCATTER_FROM])
        if (noise := noise_of(train.loss[rows])) is not None
    ]
    if not scatters:
        return None
    old, new = float(np.median(train.loss[near])), float(np.median(train.loss[after[:BESIDE]]))
    width = min(len(near), len(after[:BESIDE]))
    if new - old <= max(LEAST_JUMP, BEYOND * max(scatters) / np.sqrt(width / 2)):
        return None
    last = int(near[-1])
    shown = logged("loss", float(train.loss[last]), int(train.line[last]), unit="nats")
    return _of_lines(
        reading, event, after, levels=(old, new), before=shown, weights_are_right=weights_are_right
    )


def _from_evaluation_to_lines(reading: Reading, event: Event, weights_are_right: bool) -> ResumeJump | None:
    """The rise from the last evaluation of training text before a resume to the lines behind it."""
    log, train, evals = reading.log, reading.train, reading.evals
    if log is None or train is None or evals is None:
        return None
    earlier = log.moment(evals.line) < log.moment(event.line)
    rows = np.flatnonzero(np.isfinite(evals.train_loss) & earlier)
    _, after = _parted(reading, event)
    if not len(rows) or len(after) < LEAST_BESIDE:
        return None
    last = int(rows[-1])
    noise = noise_of(train.loss[after[:SCATTER_FROM]])
    old, new = float(evals.train_loss[last]), float(np.median(train.loss[after[:BESIDE]]))
    width = min(BESIDE, len(after))
    beyond = BEYOND * noise.sd / np.sqrt(width / 2) if noise is not None else 0.0
    least = max(LEAST_JUMP, beyond) if _without_dropout(reading) else BEYOND_ANY_REASON
    if evals.step[last] > train.step[after[0]] or new - old <= max(least, beyond):
        return None
    shown = logged("eval_train_loss", old, int(evals.line[last]), unit="nats")
    return _of_lines(
        reading, event, after, levels=(old, new), before=shown, weights_are_right=weights_are_right
    )


def _without_dropout(reading: Reading) -> bool:
    """Whether lines in training mode are known to have no dropout."""
    if reading.log is not None and not reading.log.format.has_dropout:
        return True
    return reading.settings.number("dropout") == 0


def _of_lines(
    reading: Reading,
    event: Event,
    after: Integers,
    *,
    levels: tuple[float, float],
    before: Fact,
    weights_are_right: bool,
) -> ResumeJump:
    """A rise to the lines behind a resume, with where they came back."""
    train = reading.train
    assert train is not None
    windows = np.lib.stride_tricks.sliding_window_view(train.loss[after], LEAST_BESIDE)
    back = np.flatnonzero(np.median(windows, axis=1) <= levels[0])
    return ResumeJump(
        event,
        "The loss",
        *levels,
        before,
        logged("loss", float(train.loss[after[0]]), int(train.line[after[0]]), unit="nats"),
        step=int(train.step[after[0]]),
        back=int(train.step[after[back[0]]]) if len(back) else None,
        last=int(train.step[after[-1]]),
        weights_are_right=weights_are_right,
    )

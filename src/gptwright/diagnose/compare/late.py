"""The difference that a verdict rests on: the mean over the late evaluations that both runs have.

One evaluation of nanoGPT's draws its windows, so its noise hides what ten of them in a row show plainly: of
two runs 0.02 nats apart, at GPT-2's size and nanoGPT's settings, the last evaluations alone tell half of the
time, the late half of them almost always (simulated, see tests/diagnose/test_late.py). What another seed
would give is the same at all of them and does not average out. Where the difference moves, only the stretch
counts over which it held still, because who is ahead at the end is the question.
"""

import math
from dataclasses import dataclass

from gptwright.diagnose.compare.outcome import SIGNIFICANT, Point
from gptwright.diagnose.compare.points import (
    Spent,
    loss_curves,
    losses_at,
    own_error,
    places_of,
    seed_error,
    spent_on_both,
)
from gptwright.diagnose.evaluation import correlation_of_lines, standard_error
from gptwright.diagnose.reading import Reading
from gptwright.diagnose.series import Series
from gptwright.record.arrays import Floats

# A mean of fewer says little more than the last one, and its stretch could not be seen to hold still.
FEWEST = 4


@dataclass(frozen=True, slots=True)
class Late:
    """Mean losses of two runs over the late evaluations that both have.

    Attributes:
        point: the means, with the standard error of their difference; `at` is where the stretch ends.
        since: where it begins, in what `point.at` is counted in.
        values: evaluations, or lines of training, in it.
        what: what they are.
    """

    point: Point
    since: float
    values: int
    what: str


def late_difference(a: Reading, b: Reading) -> Late | None:
    """The mean difference over the late half of what both have; None where an average is worth no more than
    its last value: of few values, and of evaluations over the same windows every time.
    """
    ours, theirs = (curve.after(0) for curve in loss_curves(a, b))
    spent = spent_on_both(a, b)
    if None in spent or not len(ours) or not len(theirs):
        return None
    if not (_averages_out(a, ours) and _averages_out(b, theirs)):
        return None
    at, values = _shared(ours, theirs, spent)  # type: ignore[arg-type]
    alike = max(correlation_of_lines(run) for run in (a, b)) if ours.name == "train_loss" else 0.0
    one = own_error(a, b, (ours, theirs)) * math.sqrt((1 + alike) / (1 - alike))
    rows = _still(values[1] - values[0], one)
    if rows is None:
        return None
    count = len(at) - rows
    error = math.hypot(one / math.sqrt(count), seed_error(a), seed_error(b))
    means = [float(value[rows:].mean()) for value in values]
    what = "lines" if ours.name == "train_loss" else "evaluations"
    return Late(Point(float(at[-1]), means[0], means[1], error), float(at[rows]), count, what)


def _averages_out(reading: Reading, curve: Series) -> bool:
    """Whether what makes a value unsure is drawn anew for the next one: not so of an error that a trainer's
    fixed windows have, while the scatter of a curve around its own trend is by nature.
    """
    if curve.name != "val_loss" or standard_error(reading) is None or reading.log is None:
        return True
    form = reading.log.format
    return "eval_iters" in form.defaults and not form.evaluates_same_windows


def _shared(ours: Series, theirs: Series, spent: tuple[Spent, Spent]) -> tuple[Floats, tuple[Floats, Floats]]:
    """Both curves where the one with fewer values has them, in the late half of what both spent."""
    places = places_of((ours, theirs), spent)
    high = min(x[-1] for x in places)
    low = max(*(x[0] for x in places), high / 2)
    at = min((x[(x >= low) & (x <= high)] for x in places), key=len)
    return at, losses_at(at, places, (ours, theirs))


def _still(difference: Floats, error: float) -> int | None:
    """From which value on a difference holds still within the error of one; None if for too few."""
    first = 0
    while (count := len(difference) - first) >= FEWEST:
        middle = first + count // 2
        halves = difference[first:middle], difference[middle:]
        moved = abs(float(halves[1].mean() - halves[0].mean()))
        if moved <= SIGNIFICANT * error * math.hypot(*(1 / math.sqrt(len(half)) for half in halves)):
            return first
        first = middle
    return None

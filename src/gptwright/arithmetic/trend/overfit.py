"""Whether validation loss has risen from its best while training loss fell, beyond the noise.

The lowest of many noisy evaluations is too low by itself, so neither it nor the last one is compared alone:
the mean of the last three is held against the lowest mean of three (of two where there are fewer than nine),
and the bound grows with the number of places where the lowest could have been. Simulated false alarms and
power: docs/scaling.md.
"""

import math
from dataclasses import dataclass

import numpy as np

from gptwright.arithmetic.quantiles import normal_quantile, student_quantile
from gptwright.arithmetic.trend.noise import Floats, Numbers, neighbour_scatter, noise_of

MEAN_OF, MEAN_OF_FEW, FEW = 3, 2, 9
LEAST_EVALUATIONS = 4
# The best must be at least this many evaluations old, so that the two means share none.
LEAST_AGE = 3
# One false alarm in a thousand healthy runs.
FALSE_ALARM = 1e-3
# Without a known standard error the scatter around the trend stands in. From few evaluations it is itself
# uncertain: taken from medians it is worth about half their number in degrees of freedom.
POINTS_PER_DEGREE = 2
# Few evaluations behind a steep start: the curve's own bend looks like noise. Four rises in a row, to twelve
# times the scatter of the later two thirds, happen by chance once in 2,000 flat runs of 8 or more evaluations
# (simulated), and the training loss has to slide in the same way.
STEPS_IN_A_ROW, FEWEST_TO_CLIMB, CLIMB = 4, 8, 12.0
# Where training loss fell on by far more than the noise while validation did not follow it down, the run is
# memorizing, and a smaller rise is one: of a healthy run validation would have fallen with it. The gap must
# have grown by this much and by so many scatters of both, and validation have risen by so many of its own.
LEAST_GROWTH, GROWTH, RISE_OF_MEMORY = 0.15, 6.0, 3.0
# From four evaluations on: validation rose at each of the last two, by this much in all, while training fell
# by four times it. Of a healthy run validation would have fallen by about as much, so noise has to make up
# for both.
FEW_IN_A_ROW, RISE_OF_FEW, FALL_OF_FEW = 2, 0.05, 0.2
# Points behind the steep start that tell what they scatter by.
LEAST_LATE = 6
# Evaluations on fixed windows scatter little; a rise smaller than a run's own seed noise is none. Seeds give
# 0.0014 nats at 124M, more for small models (evaluation.py).
LEAST_NOISE = 0.0014


@dataclass(frozen=True, slots=True, kw_only=True)
class OverfitPoint:
    """The best evaluation, and what came after it.

    Attributes:
        best_step: step of the lowest validation loss.
        best: that loss, nats.
        last: mean of the last three (of two where there are fewer than nine), nats.
        rise: last minus the lowest mean of as many, nats; not below 0.
        bound: what noise alone could make of it, nats.
        exceeds: whether the rise is beyond the noise and the best older than three evaluations.
        train_change: training loss since the best, nats; None if there is none.
        train_falls: whether that is a fall beyond the noise; None if there is none.
        evaluations_since: evaluations after the best.
    """

    best_step: int
    best: float
    last: float
    rise: float
    bound: float
    exceeds: bool
    train_change: float | None
    train_falls: bool | None
    evaluations_since: int


def overfit_point(
    steps: Numbers, train: Numbers | None, val: Numbers, val_se: float | None = None
) -> OverfitPoint | None:
    """What validation loss did after its best; None for fewer than 4 evaluations.

    Args:
        steps: of the evaluations.
        train: training loss at the same steps, in eval mode if there is one, NaN where it is missing.
        val: validation loss.
        val_se: standard error of one evaluation around the split's own mean, if it is known.
    """
    at, y = np.asarray(steps, dtype=np.float64), np.asarray(val, dtype=np.float64)
    other = np.full_like(y, np.nan) if train is None else np.asarray(train, dtype=np.float64)
    good = np.isfinite(y)
    at, y, other = at[good], y[good], other[good]
    if len(y) < LEAST_EVALUATIONS:
        return None
    best = int(np.argmin(y))
    together = MEAN_OF if len(y) >= FEW else MEAN_OF_FEW
    means = np.convolve(y, np.ones(together) / together, mode="valid")
    lowest = int(np.argmin(means))
    rise = max(float(means[-1] - means[lowest]), 0.0)
    bound = _bound(y, at, val_se, len(means)) / math.sqrt(together / 2)
    change, falls = _train_change(other, at, best)
    climbs = val_se is None and _keeps_rising(y, at, best)
    return OverfitPoint(
        best_step=int(at[best]),
        best=float(y[best]),
        last=float(means[-1]),
        rise=rise,
        bound=bound,
        exceeds=(
            (rise > bound or climbs or _memorizes(y, other, at, together)) and len(y) - 1 - best >= LEAST_AGE
        )
        or _turns_among_few(y, other, best),
        train_change=change,
        train_falls=falls,
        evaluations_since=len(y) - 1 - best,
    )


def _bound(y: Floats, at: Floats, standard_error: float | None, places: int) -> float:
    """What the difference of two evaluations reaches by noise once in a thousand runs."""
    chance = 1 - FALSE_ALARM / places
    if standard_error is not None:
        return normal_quantile(chance) * max(standard_error, LEAST_NOISE)
    noise = noise_of(y, at)
    sd = neighbour_scatter(y, at) if noise is None else noise.sd
    degrees = max(len(y) / POINTS_PER_DEGREE, 2.0)
    return student_quantile(degrees, chance) * max(sd, LEAST_NOISE)


def _keeps_rising(y: Floats, at: Floats, best: int) -> bool:
    """Whether every value from the best on is above the one before, to far beyond the later scatter."""
    if len(y) < FEWEST_TO_CLIMB or len(y) - 1 - best < STEPS_IN_A_ROW or (np.diff(y[best:]) < 0).any():
        return False
    late = slice(len(y) // 3, None)
    return bool(y[-1] - y[best] > CLIMB * max(neighbour_scatter(y[late], at[late]), LEAST_NOISE))


def _memorizes(y: Floats, train: Floats, at: Floats, together: int) -> bool:
    """Whether the gap to training loss opened far beyond the scatter, and validation rose with it."""
    if len(y) < FEWEST_TO_CLIMB or not np.isfinite(train).all():
        return False
    kernel = np.ones(together) / together
    val_means, train_means = (np.convolve(series, kernel, mode="valid") for series in (y, train))
    lowest = int(np.argmin(val_means))
    rise, fall = val_means[-1] - val_means[lowest], train_means[lowest] - train_means[-1]
    late = slice(min(max(len(y) // 3, lowest), len(y) - LEAST_LATE), None)
    scatter, beside = (max(neighbour_scatter(series[late], at[late]), LEAST_NOISE) for series in (y, train))
    return bool(
        rise > RISE_OF_MEMORY * scatter * math.sqrt(2 / together)
        and rise + fall > max(LEAST_GROWTH, GROWTH * (scatter + beside))
        and fall > 0
    )


def _turns_among_few(y: Floats, train: Floats, best: int) -> bool:
    """Whether a handful of evaluations, as of epochs, rises to its end while training loss falls on
    by far more.
    """
    if len(y) - 1 - best < FEW_IN_A_ROW or not np.isfinite(train).all() or best < 1:
        return False
    rise, fall = float(y[-1] - y[best]), float(train[best] - train[-1])
    return bool(
        (np.diff(y[best:]) > 0).all()
        and (np.diff(train[best:]) < 0).all()
        and rise > RISE_OF_FEW
        and fall > max(FALL_OF_FEW, rise / 2)
    )


def _train_change(train: Floats, at: Floats, best: int) -> tuple[float | None, bool | None]:
    """How far training loss moved since the best evaluation, and whether that is a fall."""
    good = np.flatnonzero(np.isfinite(train))
    after = good[good >= best]
    if len(after) < 2:
        return None, None
    change = float(train[after[-1]] - train[after[0]])
    noise = noise_of(train, at)
    scatter = noise.sd if noise is not None else 0.0
    if len(train) < FEWEST_TO_CLIMB and change < -FALL_OF_FEW:
        return change, bool((np.diff(train[after]) < 0).all())
    return change, change < -2 * math.sqrt(2) * scatter or _keeps_rising(
        -train[good], at[good], int(np.searchsorted(good, best))
    )

"""The slope of a series with its interval, and the offset between two series.

With known noise the slope of W evenly spaced points has a standard error of noise × sqrt(12) / W^1.5, so a
plateau can be claimed only where that is small against the slope that would matter.
"""

import math
from dataclasses import dataclass

import numpy as np

from gptwright.arithmetic.quantiles import normal_quantile, student_quantile
from gptwright.arithmetic.trend.noise import MEDIAN_TO_SD, Floats, Numbers, finite_pairs, noise_of

# A chord lies above a falling curve by up to an eighth of the bend between two intervals; intervals where the
# mean of that, a twelfth, is more than this share of the offset's noise would be read as offset.
MOST_BEND = 0.1


@dataclass(frozen=True, slots=True)
class Slope:
    """A straight line's slope.

    Attributes:
        per_step: change of the value per unit of x.
        standard_error: of the slope.
        low: lower end of the interval.
        high: upper end of the interval.
    """

    per_step: float
    standard_error: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Offset:
    """The mean difference of two series at the same steps.

    Attributes:
        mean: first minus second.
        standard_error: of the mean.
        n: points of the first series that were compared.
    """

    mean: float
    standard_error: float
    n: int


def slope(
    steps: Numbers, values: Numbers, noise: float | None = None, *, level: float = 0.95
) -> Slope | None:
    """The least-squares slope with its interval; None for fewer than 3 points.

    Args:
        steps: where the points lie.
        values: the series.
        noise: standard deviation of one point, if it is known; else it is taken from the residuals.
        level: share of the interval.
    """
    y, x = finite_pairs(values, steps)
    if len(y) < 3:
        return None
    centred = x - x.mean()
    spread = float(centred @ centred)
    per_step = float(centred @ y) / spread
    if noise is None:
        residuals = y - y.mean() - per_step * centred
        noise = math.sqrt(float(residuals @ residuals) / (len(y) - 2))
        quantile = student_quantile(len(y) - 2, (1 + level) / 2)
    else:
        quantile = normal_quantile((1 + level) / 2)
    error = noise / math.sqrt(spread)
    return Slope(per_step, error, per_step - quantile * error, per_step + quantile * error)


def offset_between(a_steps: Numbers, a: Numbers, b_steps: Numbers, b: Numbers) -> Offset | None:
    """How far series `a` lies above series `b` on average; None if they share too little.

    `b`, the smoother and sparser one, is interpolated; the steep start, where interpolation itself would
    make an offset, is left out. Meant for a trainer's per-step loss against its eval-mode loss: an offset of
    several standard errors is dropout (0.0925 nats, z about 9, in a public 40M run with dropout 0.1, -0.006
    in one without).
    """
    first, first_at = finite_pairs(a, a_steps)
    second, second_at = finite_pairs(b, b_steps)
    if len(second) < 4 or len(first) < 4:
        return None
    inside = (first_at >= second_at[0]) & (first_at <= second_at[-1])
    if inside.sum() < 4:
        return None
    first, first_at = first[inside], first_at[inside]
    interval = np.clip(np.searchsorted(second_at, first_at, side="right") - 1, 0, len(second) - 2)
    differences = first - np.interp(first_at, second_at, second)
    straight = _straight_intervals(second, differences)[interval]
    differences, interval = differences[straight], interval[straight]
    if len(differences) < 4:
        return None
    # An error of b moves all differences in its two intervals, so b's own noise counts once per interval.
    noise = noise_of(second, second_at)
    own = (noise.sd**2 if noise is not None else 0.0) / len(np.unique(interval))
    error = math.sqrt(float(differences.var(ddof=1)) / len(differences) + own)
    return Offset(float(differences.mean()), error, len(differences))


def _straight_intervals(values: Floats, differences: Floats) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which intervals between neighbours of `values` lie after the steep start."""
    drops = -np.diff(values)
    bend = np.abs(np.append(drops[:-1] - drops[1:], 0.0)) / 12
    scatter = MEDIAN_TO_SD * float(np.median(np.abs(differences - np.median(differences))))
    # Noise bends a flat curve too; only what stands out of it is the start.
    own = noise_of(values)
    allowed = max(MOST_BEND * scatter, 6**0.5 * 2 * (own.sd if own is not None else 0.0) / 12)
    bent = np.flatnonzero(bend > allowed)
    early = bent[bent < len(drops) / 2]
    return np.arange(len(drops)) > (early[-1] if len(early) else -1)

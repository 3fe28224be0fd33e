"""The noise of a logged series around its smooth trend, without knowing the trend.

A point is compared with the line between its neighbours. Where the curve is smooth that difference is noise
alone; its scale is taken from the median, so that spikes and a steep start do not move it. Trainers that log
a running average make neighbours alike; the same differences two points apart show how much.

Source of the differences: Gasser, Sroka and Jennen-Steinmetz, Biometrika 73 (1986). Cost: two medians.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.floating] | npt.NDArray[np.integer]

# The median of |x| of a normal variable is 0.6745 of its standard deviation.
MEDIAN_TO_SD = 1 / 0.674490
# Fewer differences than this say little: their median is off by a third.
LEAST_POINTS = 8
# The ratio of the two variances is off by 3.7 / sqrt(points) where the noise is white (simulated for 60 to
# 20,000 points); only beyond three times that are neighbours called alike.
RATIO_ERROR = 11.0
LEAST_POINTS_FOR_RATIO = 60
# A running average of 50 points, the longest that a trainer is known to log, has 0.98.
MOST_ALIKE = 0.98


@dataclass(frozen=True, slots=True)
class Noise:
    """The noise of a series.

    Attributes:
        sd: standard deviation of one point, in the series' unit.
        effective: how many independent points the series is worth.
        correlation: between neighbours, 0 for white noise.
    """

    sd: float
    effective: float
    correlation: float


def noise_of(values: Numbers, x: Numbers | None = None) -> Noise | None:
    """The noise of `values` around a smooth trend; None for fewer than 8 finite points.

    Args:
        values: the series, in order. NaN and infinity are left out.
        x: where the points lie, if not at equal distances; must not fall.
    """
    y, at = finite_pairs(values, x)
    if len(y) < LEAST_POINTS:
        return None
    near = neighbour_scatter(y, at)
    correlation = 0.0
    if len(y) >= LEAST_POINTS_FOR_RATIO and near > 0:
        far = neighbour_scatter(y, at, lag=2)
        correlation = _correlation((far / near) ** 2, len(y))
    sd = near * alike_factor(correlation)
    return Noise(sd, len(y) * (1 - correlation) / (1 + correlation), correlation)


def finite_pairs(values: Numbers, x: Numbers | None) -> tuple[Floats, Floats]:
    """Values and places as float64, without those that are not finite or lie no further than one before."""
    y = np.asarray(values, dtype=np.float64)
    at = np.arange(len(y), dtype=np.float64) if x is None else np.asarray(x, dtype=np.float64)
    good = np.isfinite(y) & np.isfinite(at)
    if not good.all():
        y, at = y[good], at[good]
    if x is None or bool((at[1:] > at[:-1]).all()):
        return y, at
    furthest = np.concatenate(([-np.inf], np.maximum.accumulate(at)[:-1])) if len(at) else at
    kept = at > furthest
    return y[kept], at[kept]


def neighbour_differences(y: Floats, at: Floats, lag: int) -> Floats:
    """Each point minus the line between those `lag` before and after, scaled to the noise of one."""
    left, middle, right = y[: -2 * lag], y[lag:-lag], y[2 * lag :]
    width = at[2 * lag :] - at[: -2 * lag]
    part = at[lag:-lag] - at[: -2 * lag]
    # At equal distances, as in most logs, the same by one number, in half the time.
    share = 0.5 if bool((2 * part == width).all()) else part / width
    differences: Floats = (middle - (1 - share) * left - share * right) / np.sqrt(
        1 + share**2 + (1 - share) ** 2
    )
    return differences


def median_of(values: Floats) -> float:
    """The median of finite values; numpy's own looks for NaN and for the largest one too."""
    middle = len(values) // 2
    if len(values) % 2:
        return float(np.partition(values, middle)[middle])
    parted = np.partition(values, (middle - 1, middle))
    return float((parted[middle - 1] + parted[middle]) / 2)


def neighbour_scatter(y: Floats, at: Floats, *, lag: int = 1) -> float:
    """The noise of one point, as standard deviation, where neighbours are independent of each other."""
    return MEDIAN_TO_SD * median_of(np.abs(neighbour_differences(y, at, lag)))


def alike_factor(correlation: float) -> float:
    """How much larger the noise is than differences of neighbours say that are alike by `correlation`."""
    return math.sqrt(1.5 / _near_variance(correlation))


def _near_variance(correlation: float) -> float:
    """Variance of x_i − (x_{i−1} + x_{i+1}) / 2 for unit noise that is alike by correlation^distance."""
    return 1.5 + 0.5 * correlation**2 - 2 * correlation


def _correlation(ratio: float, points: int) -> float:
    """The correlation at which differences two apart have `ratio` times the variance of those one apart."""
    if ratio <= 1 + RATIO_ERROR / math.sqrt(points):
        return 0.0
    low, high = 0.0, MOST_ALIKE
    for _ in range(40):
        middle = (low + high) / 2
        if _near_variance(middle**2) / _near_variance(middle) < ratio:
            low = middle
        else:
            high = middle
    return low

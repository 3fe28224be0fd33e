"""Curves of any length as a few thousand points that look the same: nothing that sticks out is lost.

The rows are cut into buckets of equal length, and of each the lowest and the highest value are kept, at
their own places; so every spike is drawn at its full height, which a mean or every n-th row would lose. A row
that is no number becomes a gap.
"""

from dataclasses import dataclass

import numpy as np

from gptwright.arithmetic.trend import noise_of
from gptwright.arithmetic.trend.noise import median_of
from gptwright.record.arrays import Floats, Integers

# Twice the pixels of a wide screen's chart, so that a zoom shows more than was seen before.
MOST_BUCKETS = 1_000
# Windows of the trend; they overlap where the log is short.
TREND_WINDOWS = 120
# Nine lines have a stable median; a spread needs some forty to be within a tenth, and so does a trend.
HALF_WINDOW, HALF_OF_SPREAD = 4, 20
LEAST_LINES = 2 * HALF_OF_SPREAD


@dataclass(frozen=True, slots=True)
class Trend:
    """A noisy series as its middle and its noise; arrays of one length.

    Attributes:
        step: middle of each window.
        middle: median of the window.
        low: the median less one standard deviation of a single value.
        high: the median and one standard deviation.
        rows: values in a window.
    """

    step: Floats
    middle: Floats
    low: Floats
    high: Floats
    rows: int


def thin(step: Integers, value: Floats, *, buckets: int = MOST_BUCKETS) -> tuple[Integers, Floats]:
    """At most three rows a bucket: the lowest, the highest, and one that is no number if there is one.

    Args:
        step: places, rising.
        value: values; NaN and infinity are gaps and stay so.
        buckets: how many buckets to cut the rows into.
    """
    if len(step) <= 2 * buckets:
        return step, value
    size = -(-len(step) // buckets)
    padded = np.full(size * buckets, np.nan)
    padded[: len(value)] = np.where(np.isfinite(value), value, np.nan)
    table = padded.reshape(buckets, size)
    first = np.arange(buckets) * size
    there = np.isfinite(table)
    lowest = np.where(there, table, np.inf).argmin(axis=1) + first
    highest = np.where(there, table, -np.inf).argmax(axis=1) + first
    some = there.any(axis=1)
    bad = ~there.reshape(-1)
    bad[len(value) :] = False
    gaps = bad.reshape(buckets, size)
    holes = (gaps.argmax(axis=1) + first)[gaps.any(axis=1)]
    ends = np.array([0, len(step) - 1])
    rows = np.unique(np.concatenate([lowest[some], highest[some], holes, ends]))
    return step[rows], value[rows]


def trend_of(step: Integers, value: Floats) -> Trend | None:
    """The middle of a noisy series and how far single values lie from it; None where there are too few.

    The middle of a window is its median, which a spike does not move; the spread is the noise of the values
    around their own trend (`arithmetic.trend.noise`), so that a steep start does not look noisy.
    """
    good = np.isfinite(value)
    step, value = step[good], value[good]
    if len(value) < LEAST_LINES:
        return None
    windows = min(TREND_WINDOWS, len(value) // HALF_WINDOW)
    half = max(HALF_WINDOW, len(value) // (2 * windows))
    wide = max(half, HALF_OF_SPREAD)
    columns = []
    for center in np.linspace(half, len(value) - 1 - half, windows).astype(int):
        middle = median_of(value[center - half : center + half + 1])
        noise = noise_of(value[max(0, center - wide) : center + wide + 1])
        spread = noise.sd if noise is not None else 0.0
        columns.append((float(step[center]), middle, middle - spread, middle + spread))
    at, middle_of, low, high = np.array(columns, dtype=np.float64).T
    return Trend(at, middle_of, low, high, 2 * half + 1)

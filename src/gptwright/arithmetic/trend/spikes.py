"""Spikes (the loss rose and came back) and rises (it rose and stayed).

A point is compared with what the points before it promise, in units of the noise around it, as llm.c's
outlier detector and ZClip do with a window of 128. Both are taken from medians, so that an earlier spike does
not hide the next one, and the promise follows a falling trend only in part, so that a steep start cannot look
like a rise.

False alarms: a spike needs three of five neighbouring points beyond 5 standard deviations, or two beyond 8,
or one beyond 15. White noise does that once in more than 1e12 points, noise with the heavy tails of a t
distribution with 5 degrees of freedom once in some 1e7, so no correction for the length of a log is needed.
A rise is looked for in about 20 places and needs 5 standard errors. Simulated: docs/scaling.md.

Cost: two running medians at no more than 4,000 places, about 20 ms for 20,000 points.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gptwright.arithmetic.trend.noise import (
    MEDIAN_TO_SD,
    Floats,
    Numbers,
    alike_factor,
    finite_pairs,
    median_of,
    neighbour_differences,
    neighbour_scatter,
    noise_of,
)

LEAST_POINTS = 40
# Differences smaller than the seed's own (0.0014 nats at 124M) are no event, however smooth the curve is.
NOISE_FLOOR = 0.002
# The promise is made from a tenth of the series, but at least 10 points and at most llm.c's 128.
SHARE_OF_SERIES, LEAST_WINDOW, MOST_WINDOW = 10, 10, 128
# The noise is taken from four times that: its median then is off by a tenth.
NOISE_WINDOWS = 4
# Spikes are taken out before the noise and its correlation are measured: many in a short log are a third of
# its points, and as neighbours of each other they look like a series that wanders. A point that lies eight
# standard deviations off the median of nine around it is one; no more than three in a row are.
AROUND, TAKEN_OUT = 9, 8.0
# A falling power law falls, until the next point, by 0.3 of the last window's drop at three windows from the
# start and by up to 0.5 far from it. Steeper starts flatten sooner, so at most 2 standard deviations are
# promised: what is then left of the 5 that three points need is still 3 for each.
TREND_KEPT, MOST_PROMISED = 0.3, 2.0
# See the module's text.
FEW_BEYOND, TWO_BEYOND, ONE_BEYOND = 5.0, 8.0, 15.0
# A median of five points has 0.54 of the noise of one, so this is back within 4 of its standard deviations.
RETURN, BACK_WITHIN = 5, 2.0
# Points of a return that are looked at together.
LOOKED_AHEAD = 10_000
# An excursion that is still out at the end is a rise if it had this many points to come back in.
POINTS_TO_RETURN = 20
MOST_PLACES, MOST_NOISE_PLACES = 4_000, 200
# The level at the end, against the lowest level before, both medians of a twentieth of the series: 5 standard
# errors leave less than 1e-5 for 20 places, and the noise itself is known to a tenth.
LEVELS, LEAST_LEVEL, RISE_BEYOND = 20, 5, 5.0
# A median's standard deviation against a mean's.
MEDIAN_LOSS = 1.2533


@dataclass(frozen=True, slots=True)
class Spike:
    """An excursion upwards.

    Attributes:
        first: step of its first point.
        peak: step of its highest point.
        recovered_at: step from which it was back; None if the log ends before that can be seen.
        height: how far the peak lies above what was expected, nats.
        z: the same in standard deviations of the noise.
    """

    first: int
    peak: int
    recovered_at: int | None
    height: float
    z: float


@dataclass(frozen=True, slots=True)
class Rise:
    """A level that went up and stayed.

    Attributes:
        lowest_step: where the lowest level was.
        lowest: that level, nats.
        began: first step from which it stayed above.
        level: the level at the end, nats.
        height: level minus lowest.
        z: height in its standard errors.
    """

    lowest_step: int
    lowest: float
    began: int
    level: float
    height: float
    z: float


def find_spikes(steps: Numbers, values: Numbers, *, correlation: float = 0.0) -> list[Spike]:
    """Excursions above the trend that came back, or whose end the log does not show.

    Args:
        steps: where the points lie.
        values: the series.
        correlation: between neighbours, where a running average is logged (0.9 in nanochat); what can be seen
            of it in a few hundred points is too little.
    """
    y, at = finite_pairs(values, steps)
    if len(y) < LEAST_POINTS:
        return []
    expected, sd = _promise(y, at, correlation)
    z = (y - expected) / sd
    spikes, index = [], 0
    for start in _onsets(z):
        if start < index:
            continue
        base, noise = float(expected[start]), float(sd[start])
        back = _return(y, start, base, noise)
        if back is None and len(y) - start > POINTS_TO_RETURN:
            break
        end = len(y) if back is None else back
        peak = start + int(np.argmax(y[start:end]))
        height = float(y[peak]) - base
        recovered = None if back is None else int(at[back])
        spikes.append(Spike(int(at[start]), int(at[peak]), recovered, height, height / noise))
        index = end
    return spikes


def find_rise(steps: Numbers, values: Numbers, *, correlation: float = 0.0) -> Rise | None:
    """Whether the series ended above the lowest level that it had held, beyond the noise.

    Args:
        steps: where the points lie.
        values: the series.
        correlation: between neighbours, as in `find_spikes`.
    """
    y, at = finite_pairs(values, steps)
    width = max(LEAST_LEVEL, len(y) // LEVELS)
    noise = noise_of(y, at)
    if len(y) < 3 * width or noise is None:
        return None
    starts = np.arange(len(y) - width, -1, -max(1, width // 2))[::-1]
    levels = np.array([median_of(y[start : start + width]) for start in starts])
    correlation = max(correlation, noise.correlation)
    sd = np.array([_local_sd(y, at, start, width) for start in starts]) * alike_factor(correlation)
    worth = width * (1 - correlation) / (1 + correlation)
    errors = MEDIAN_LOSS * np.maximum(sd, noise.sd * 0.1) / math.sqrt(max(worth, 1.0))
    errors = np.maximum(errors, _wandering(levels))
    low = int(np.argmin(levels))
    error = math.hypot(float(errors[low]), float(errors[-1]))
    height = float(levels[-1] - levels[low])
    limit = float(levels[low]) + RISE_BEYOND / 2 * error
    above = levels > limit
    # Half-overlapping levels: the last two together are one and a half widths that have stayed up.
    if error <= 0 or height <= RISE_BEYOND * error or not above[-2]:
        return None
    below = np.flatnonzero(~above)
    began = _left_behind(y, int(starts[int(below[-1])]) + width // 2, width, limit) if len(below) else 0
    return Rise(
        int(at[starts[low] + width // 2]),
        float(levels[low]),
        int(at[began]),
        float(levels[-1]),
        height,
        height / error,
    )


def _left_behind(y: Floats, begin: int, width: int, limit: float) -> int:
    """The last point at or below a level, from a point on that lies in a stretch of `width` at that level."""
    medians = np.median(
        np.lib.stride_tricks.sliding_window_view(y[begin : begin + 2 * width], LEAST_LEVEL), axis=1
    )
    held = np.flatnonzero(medians <= limit)
    return begin + (int(held[-1]) + LEAST_LEVEL // 2 if len(held) else 0)


def _wandering(levels: Floats) -> float:
    """The noise of a level, from how levels that share no point differ; it counts what neighbours share."""
    apart = levels[(len(levels) - 1) % 2 :: 2]
    if len(apart) < 5:
        return 0.0
    return neighbour_scatter(apart, np.arange(len(apart), dtype=np.float64))


def _promise(y: Floats, at: Floats, correlation: float) -> tuple[Floats, Floats]:
    """What each point is expected to be, and the noise there, from the points before it."""
    window = min(max(len(y) // SHARE_OF_SERIES, LEAST_WINDOW), MOST_WINDOW)
    everywhere = np.arange(len(y))
    few = min(MOST_NOISE_PLACES, len(y) - 2 * window)
    noise_places = np.linspace(2 * window, len(y) - 1, few).astype(np.int64)
    sd = _noise_at(_without_spikes(y), at, noise_places, window, correlation)
    places = np.arange(2 * window, len(y), max(1, len(y) // MOST_PLACES))
    last, before = (_medians(y, places - back * window, window) for back in (1, 2))
    nearest = np.maximum(np.searchsorted(noise_places, places, side="right") - 1, 0)
    falling = np.clip(TREND_KEPT * (last - before), -MOST_PROMISED * sd[nearest], 0.0)
    promised = last + falling
    index = np.searchsorted(places, everywhere, side="right") - 1
    noise_index = np.searchsorted(noise_places, everywhere, side="right") - 1
    started = index >= 0
    return (
        np.where(started, promised[np.maximum(index, 0)], np.inf),
        np.where(started, sd[np.maximum(noise_index, 0)], 1.0),
    )


def _noise_at(
    y: Floats, at: Floats, places: npt.NDArray[np.int64], window: int, correlation: float
) -> Floats:
    """The noise of one point, from four windows of points before each place.

    Where neighbours are alike, as where a running average is logged, their differences understate how far the
    curve wanders; so it is also taken from the scatter around a running median, and the larger one counts.
    """
    noise = noise_of(y, at)
    alike = alike_factor(max(correlation, noise.correlation if noise is not None else 0.0))
    step = max(1, len(y) // MOST_PLACES)
    centres = np.arange(window // 2, len(y) - (window + 1) // 2, step)
    scatter = np.abs(y[centres] - _medians(y, centres - window // 2, window))
    differences = np.abs(neighbour_differences(y, at, 1))
    sd = np.full(len(places), NOISE_FLOOR)
    for values, points, factor in ((differences, 1, alike), (scatter, step, 1.0)):
        wide = min(max(NOISE_WINDOWS * window // points, LEAST_WINDOW), len(values))
        # Until there are enough points behind, the noise is that of the first ones together.
        behind = np.clip((places - window) // points - wide, 0, len(values) - wide)
        sd = np.maximum(sd, MEDIAN_TO_SD * factor * _medians(values, behind, wide))
    return sd


def _without_spikes(y: Floats) -> Floats:
    """The series with the medians around them in the place of points that lie far above."""
    half = AROUND // 2
    middle = np.pad(_medians(y, np.arange(len(y) - AROUND + 1), AROUND), half, mode="edge")
    above = y - middle
    limit = TAKEN_OUT * MEDIAN_TO_SD * float(np.median(np.abs(above[half:-half])))
    return np.where(above > max(limit, NOISE_FLOOR), middle, y)


def _medians(values: Floats, starts: npt.NDArray[np.int64], width: int) -> Floats:
    views = np.lib.stride_tricks.sliding_window_view(values, width)
    medians: Floats = np.median(views[starts], axis=1)
    return medians


def _local_sd(y: Floats, at: Floats, start: int, width: int) -> float:
    reach = max(2 * width, LEAST_WINDOW * 2)
    begin = max(0, min(start - (reach - width) // 2, len(y) - reach))
    part = slice(begin, begin + reach)
    return neighbour_scatter(y[part], at[part])


def _onsets(z: Floats) -> npt.NDArray[np.int64]:
    """First points of places where the rule of the module's text is met."""
    few = _counts(z > FEW_BEYOND, 5) >= 3
    two = _counts(z > TWO_BEYOND, 2) >= 2
    met = np.flatnonzero((few & (z > FEW_BEYOND)) | (two & (z > TWO_BEYOND)) | (z > ONE_BEYOND))
    return met.astype(np.int64)


def _counts(beyond: npt.NDArray[np.bool_], width: int) -> npt.NDArray[np.int64]:
    """How many of the `width` points from each one on are beyond."""
    total = np.concatenate(([0], np.cumsum(beyond)))
    ends = np.minimum(np.arange(len(beyond)) + width, len(beyond))
    counts: npt.NDArray[np.int64] = total[ends] - total[:-1]
    return counts


def _return(y: Floats, start: int, base: float, noise: float) -> int | None:
    """First point after `start` that is back at `base` and from which the median of five points is too."""
    begin = start + 1
    while len(y) - begin >= RETURN:
        # Most are back soon, and a million medians take a tenth of a second.
        part = y[begin : begin + LOOKED_AHEAD + RETURN - 1]
        medians = np.median(np.lib.stride_tricks.sliding_window_view(part, RETURN), axis=1)
        calm = medians <= base + BACK_WITHIN * noise
        back = np.flatnonzero(calm & (part[: len(medians)] <= base + FEW_BEYOND * noise))
        if len(back):
            return begin + int(back[0])
        begin += len(medians)
    return None

"""Whether a validation loss swings with a period, as it does when shards are read in order.

Least-squares periodogram with a floating mean (Zechmeister and Kürster, 2009) of what is left after the trend
is taken out. A period must fit in at least four times, span at least three evaluations, and show in
every third of the run. A steep start bends what is left of it: where the whole shows nothing, the run is
looked at once more without its first tenth.

Chance: for white noise the share of variance z that a sine explains exceeds a value with probability
(1 − z)^((n − 5) / 2) at one frequency, n less what the trend takes; with M independent frequencies at most M
times that, and twice that for the two looks.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gptwright.arithmetic.trend.noise import MEDIAN_TO_SD, Floats, Numbers, finite_pairs

LEAST_POINTS = 16
# A wave that fits in fewer times cannot be told from a bend of the trend.
LEAST_CYCLES = 4
# Two evaluations a period are the limit of what can be seen; three leave room.
LEAST_SPAN = 3.0
# Frequencies per independent one: finer, so that no peak falls between.
OVERSAMPLING = 4
MOST_POINTS = 1000
FALSE_ALARM = 5e-4
# A kink of the trend makes a wave too, but only where it is: each third must show the wave in the same phase,
# at least this share as strong as it is on the whole.
THIRDS, LEAST_IN_EACH = 3, 0.4
# Degree of the trend in log steps.
TREND_TERMS = 5
# What the second look leaves out: the loss falls there by more than in all the rest.
STEEP_SHARE, LEAST_START = 10, 4
LOOKS = 2
# Points that lie this much closer than most are too many for their stretch.
CROWDED = 3.0


@dataclass(frozen=True, slots=True)
class Period:
    """A swing of a series.

    Attributes:
        steps: length of one period, in steps.
        amplitude: of the sine, nats; twice that from top to bottom.
        false_alarm_probability: how likely white noise shows as strong a wave anywhere.
    """

    steps: float
    amplitude: float
    false_alarm_probability: float


def periodicity(steps: Numbers, values: Numbers) -> Period | None:
    """The strongest swing if it is beyond chance; None otherwise, or for fewer than 16 points."""
    y, at = _evenly(*finite_pairs(values, steps))
    y, at = y[-MOST_POINTS:], at[-MOST_POINTS:]
    start = max(LEAST_START, len(y) // STEEP_SHARE)
    return _strongest(y, at) or _strongest(y[start:], at[start:])


def _evenly(y: Floats, at: Floats) -> tuple[Floats, Floats]:
    """The points about as far apart as over most of the run: some trainers evaluate far more often at the
    end.

    A hundred points in the last twentieth of a run would be all that the trend is fitted to.
    """
    if len(at) < LEAST_POINTS:
        return y, at
    widths = np.diff(at)
    order = np.argsort(widths)
    half = int(np.searchsorted(np.cumsum(widths[order]), (at[-1] - at[0]) / 2))
    usual = float(widths[order][half])
    if usual <= CROWDED * float(widths.min()):
        return y, at
    kept = [0]
    for place in range(1, len(at)):
        if at[place] - at[kept[-1]] >= 0.9 * usual:
            kept.append(place)
    return y[kept], at[kept]


def _strongest(y: Floats, at: Floats) -> Period | None:
    """The strongest swing of a stretch, if it is beyond chance."""
    if len(y) < LEAST_POINTS:
        return None
    span = float(at[-1] - at[0])
    typical = float(np.median(np.diff(at)))
    highest, lowest = 1 / (LEAST_SPAN * typical), LEAST_CYCLES / span
    if highest <= lowest:
        return None
    rest = _without_trend(y, at)
    count = max(8, math.ceil((highest - lowest) * span * OVERSAMPLING))
    frequencies = np.linspace(lowest, highest, count)
    power = _power(rest, at, frequencies)
    best = int(np.argmax(power))
    independent = (highest - lowest) * span
    chance = min(1.0, LOOKS * independent * (1 - float(power[best])) ** ((len(y) - 5 - TREND_TERMS) / 2))
    if chance > FALSE_ALARM:
        return None
    wave = _wave(rest, at, float(frequencies[best]))
    if not _everywhere(rest, at, float(frequencies[best]), wave):
        return None
    return Period(1 / float(frequencies[best]), float(np.hypot(*wave)), chance)


def _without_trend(y: Floats, at: Floats) -> Floats:
    """What is left after a smooth curve through the whole: a polynomial in log steps, fitted twice.

    The second time without what lies far off, so that the steep start does not bend the rest.
    """
    x = np.log(at - at[0] + (at[-1] - at[0]) / len(at))
    x = 2 * (x - x[0]) / (x[-1] - x[0]) - 1
    design = np.polynomial.chebyshev.chebvander(x, TREND_TERMS)
    rest = y - design @ np.linalg.lstsq(design, y, rcond=None)[0]
    near = np.abs(rest) <= 4 * MEDIAN_TO_SD * np.median(np.abs(rest)) + 1e-12
    result: Floats = y - design @ np.linalg.lstsq(design[near], y[near], rcond=None)[0]
    limit = 4 * MEDIAN_TO_SD * float(np.median(np.abs(result))) + 1e-12
    return np.clip(result, -limit, limit)


def _power(rest: Floats, at: Floats, frequencies: Floats) -> Floats:
    """The share of variance that a sine with its own mean explains, at each frequency."""
    centred = rest - rest.mean()
    total = float(centred @ centred)
    if total == 0:
        return np.zeros(len(frequencies))
    phase = 2 * math.pi * frequencies[:, None] * (at - at[0])[None, :]
    cosine, sine = np.cos(phase), np.sin(phase)
    cosine -= cosine.mean(axis=1, keepdims=True)
    sine -= sine.mean(axis=1, keepdims=True)
    cc, ss, cs = (cosine**2).sum(axis=1), (sine**2).sum(axis=1), (cosine * sine).sum(axis=1)
    yc, ys = cosine @ centred, sine @ centred
    determinant = cc * ss - cs**2
    good = determinant > 1e-9 * cc * ss
    explained = (ss * yc**2 + cc * ys**2 - 2 * cs * yc * ys) / np.where(good, determinant, 1.0)
    power: Floats = np.where(good, explained / total, 0.0)
    return np.clip(power, 0.0, 1.0)


def _wave(rest: Floats, at: Floats, frequency: float) -> npt.NDArray[np.float64]:
    """Amplitudes of cosine and sine at `frequency`."""
    phase = 2 * math.pi * frequency * at
    design = np.stack([np.ones_like(at), np.cos(phase), np.sin(phase)], axis=1)
    amplitudes: Floats = np.linalg.lstsq(design, rest, rcond=None)[0][1:]
    return amplitudes


def _everywhere(rest: Floats, at: Floats, frequency: float, wave: Floats) -> bool:
    parts = np.array_split(np.arange(len(rest)), THIRDS)
    shown = (float(_wave(rest[part], at[part], frequency) @ wave) for part in parts)
    return all(share >= LEAST_IN_EACH * float(wave @ wave) for share in shown)

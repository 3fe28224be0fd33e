"""The losses of two runs at equal tokens, equal seconds and equal FLOPs.

A curve is interpolated between its evaluations, over the logarithm of what was spent, in which losses are
closer to straight lines than over the amount itself; it is never continued beyond its ends, nor back to the
evaluation before the first step, from which a loss falls along no line.
"""

import math
from collections.abc import Sequence

import numpy as np

from gptwright.arithmetic.evaluation import seed_noise
from gptwright.arithmetic.trend import noise_of
from gptwright.diagnose.compare.outcome import Point
from gptwright.diagnose.evaluation import standard_error
from gptwright.diagnose.reading import Reading
from gptwright.diagnose.series import Series, train_loss, val_loss
from gptwright.facts import Fact
from gptwright.record.arrays import Floats

MOST_POINTS = 12
# Of fewer evaluations the late half says nothing about their noise.
LEAST_FOR_NOISE = 6
# modded-nanogpt does not print its size; seed noise was measured on its own runs.
SPEEDRUN_PARAMETERS = 124_000_000


def loss_curves(a: Reading, b: Reading) -> tuple[Series, Series]:
    """Validation of both; where one has none, training lines of both; empty where those differ in kind."""
    curves = val_loss(a), val_loss(b)
    if len(curves[0]) and len(curves[1]):
        return curves
    if a.log is not None and b.log is not None and a.log.format.train_loss == b.log.format.train_loss:
        return train_loss(a), train_loss(b)
    return curves[0].after(math.inf), curves[1].after(math.inf)


def points_by_tokens(a: Reading, b: Reading) -> tuple[Point, ...]:
    """Both losses at equal tokens; at equal steps where neither run tells its tokens per step."""
    per_step = _number(a.speed.tokens_per_step), _number(b.speed.tokens_per_step)
    return _points(a, b, per_step if per_step != (None, None) else (1.0, 1.0))


def points_by_seconds(a: Reading, b: Reading) -> tuple[Point, ...]:
    """Both losses after equal seconds of training."""
    return _points(a, b, (_number(a.speed.step_seconds), _number(b.speed.step_seconds)))


def points_by_flops(a: Reading, b: Reading) -> tuple[Point, ...]:
    """Both losses after equal FLOPs."""
    return _points(a, b, (_flops_per_step(a), _flops_per_step(b)))


def _points(a: Reading, b: Reading, per_step: tuple[float | None, float | None]) -> tuple[Point, ...]:
    """Both losses where `per_step` × steps is equal; none where a run does not tell what a step takes."""
    if per_step[0] is None or per_step[1] is None:
        return ()
    curves = tuple(curve.after(0) for curve in loss_curves(a, b))
    if not all(len(curve) for curve in curves):
        return ()
    amounts: list[Floats] = [
        np.float64(scale) * curve.step.astype(np.float64)
        for curve, scale in zip(curves, per_step, strict=True)
    ]
    common = _common(amounts)
    if len(common) == 0:
        return ()
    values = [
        np.interp(np.log1p(common), np.log1p(x), curve.value)
        for x, curve in zip(amounts, curves, strict=True)
    ]
    error = math.hypot(*(_point_error(r, curve) for r, curve in zip((a, b), curves, strict=True)))
    return tuple(Point(float(x), float(u), float(v), error) for x, u, v in zip(common, *values, strict=True))


def same_curve(a: Reading, b: Reading) -> bool:
    """Whether two runs have the same losses at the same steps."""
    ours, theirs = loss_curves(a, b)
    return np.array_equal(ours.step, theirs.step) and np.array_equal(ours.value, theirs.value)


def _common(amounts: Sequence[Floats]) -> Floats:
    """Amounts at which one curve has a value and the other is not extrapolated, thinned."""
    low, high = max(x[0] for x in amounts), min(x[-1] for x in amounts)
    grid = np.unique(np.concatenate([x[(x >= low) & (x <= high)] for x in amounts]))
    if len(grid) > MOST_POINTS:
        grid = grid[np.unique(np.linspace(0, len(grid) - 1, MOST_POINTS).round().astype(int))]
    return grid


def _point_error(reading: Reading, curve: Series) -> float:
    """One standard error of a point: the evaluation's own, and what another seed would give."""
    own = standard_error(reading) if curve.name == "val_loss" else None
    if own is None and len(curve) >= LEAST_FOR_NOISE:
        late = curve.part(curve.step >= curve.step[-1] / 2)
        noise = noise_of(late.value, late.step)
        own = noise.sd if noise is not None else None
    size = _number(reading.sizes.parameters)
    if size is None and reading.log is not None and reading.log.format.name == "modded-nanogpt":
        size = SPEEDRUN_PARAMETERS
    seed = seed_noise(size)
    return math.hypot(own or 0.0, seed.standard_deviation)


def _number(fact: Fact | None) -> float | None:
    return fact.number if fact is not None else None


def _flops_per_step(reading: Reading) -> float | None:
    per_token, tokens = reading.sizes.flops_per_token, reading.speed.tokens_per_step
    return per_token.number * tokens.number if per_token is not None and tokens is not None else None

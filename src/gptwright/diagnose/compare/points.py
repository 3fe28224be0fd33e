"""The losses of two runs at equal tokens, equal seconds and equal FLOPs.

A curve is interpolated between its evaluations, over the logarithm of what was spent, in which losses are
closer to straight lines than over the amount itself; it is never continued beyond its ends, nor back to the
evaluation before the first step, from which a loss falls along no line.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np

from gptwright.arithmetic.evaluation import seed_noise
from gptwright.arithmetic.trend import noise_of
from gptwright.diagnose.batches import amounts
from gptwright.diagnose.compare.outcome import Point
from gptwright.diagnose.evaluation import standard_error
from gptwright.diagnose.reading import Reading
from gptwright.diagnose.series import Series, train_loss, val_curve, val_loss
from gptwright.facts import Fact
from gptwright.record.arrays import Floats

# What steps take: tokens, seconds, FLOPs.
Spent = Callable[[Floats], Floats]
MOST_POINTS = 12
# Two models are alike unsure of a hard window: over the same ones the difference of their means scatters by
# 0.16 to 0.25 of what it would over others. Measured: 240 windows of 64 characters, 0.80M parameters, two
# learning rates.
SAME_WINDOWS = 0.25
CHOOSE_WINDOWS = ("seed", "eval_iters", "batch_size", "block_size", "val_tokens")
# Of fewer evaluations the late half says nothing about their noise.
LEAST_FOR_NOISE = 6
# modded-nanogpt does not print its size; seed noise was measured on its own runs.
SPEEDRUN_PARAMETERS = 124_000_000


def loss_curves(a: Reading, b: Reading) -> tuple[Series, Series]:
    """Validation of both, in bits a byte where neither has another; else training lines of both; empty where
    those differ in kind.
    """
    curves = val_loss(a), val_loss(b)
    if len(curves[0]) and len(curves[1]):
        return curves
    if in_bits_a_byte(a, b):
        return val_curve(a), val_curve(b)
    if a.log is not None and b.log is not None and a.log.format.train_loss == b.log.format.train_loss:
        return train_loss(a), train_loss(b)
    return curves[0].after(math.inf), curves[1].after(math.inf)


def in_bits_a_byte(a: Reading, b: Reading) -> bool:
    """Whether both runs have validation in bits a byte and in nothing else."""
    return all(len(val_curve(run)) and val_curve(run).name == "val_bpb" for run in (a, b))


def points_by_tokens(a: Reading, b: Reading) -> tuple[Point, ...]:
    """Both losses at equal tokens; at equal steps where neither run tells its tokens per step."""
    return _points(a, b, spent_on_both(a, b))


def spent_on_both(a: Reading, b: Reading) -> tuple[Spent | None, Spent | None]:
    """What two runs' steps are counted in: tokens, or steps where neither tells its tokens per step."""
    if not (a.progress.batches or b.progress.batches):
        return _themselves, _themselves
    return _tokens_of(a), _tokens_of(b)


def points_by_seconds(a: Reading, b: Reading) -> tuple[Point, ...]:
    """Both losses after equal seconds of training."""
    return _points(a, b, (_seconds_of(a), _seconds_of(b)))


def points_by_flops(a: Reading, b: Reading) -> tuple[Point, ...]:
    """Both losses after equal FLOPs."""
    return _points(a, b, (_flops_of(a), _flops_of(b)))


def _points(a: Reading, b: Reading, spent: tuple[Spent | None, Spent | None]) -> tuple[Point, ...]:
    """Both losses where equal amounts are spent; none where a run does not tell what its steps take."""
    ours, theirs = spent
    if ours is None or theirs is None:
        return ()
    curves = tuple(curve.after(0) for curve in loss_curves(a, b))
    if not all(len(curve) for curve in curves):
        return ()
    spent_at = places_of(curves, (ours, theirs))
    common = _common(spent_at)
    if len(common) == 0:
        return ()
    values = losses_at(common, spent_at, curves)
    error = math.hypot(own_error(a, b, (curves[0], curves[1])), seed_error(a), seed_error(b))
    return tuple(Point(float(x), float(u), float(v), error) for x, u, v in zip(common, *values, strict=True))


def places_of(curves: Sequence[Series], spent: Sequence[Spent]) -> list[Floats]:
    """Where the rows of each curve are, in what was spent until then."""
    return [of_steps(curve.step.astype(np.float64)) for curve, of_steps in zip(curves, spent, strict=True)]


def losses_at(at: Floats, places: Sequence[Floats], curves: Sequence[Series]) -> tuple[Floats, Floats]:
    """The losses of two curves after as much, between their rows on a straight line over its logarithm."""
    ours, theirs = (
        np.interp(np.log1p(at), np.log1p(x), curve.value) for x, curve in zip(places, curves, strict=True)
    )
    return ours, theirs


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


def own_error(a: Reading, b: Reading, curves: tuple[Series, Series]) -> float:
    """One standard error of the difference of two values, but for the seeds; 0 where nothing tells it."""
    each = [_error_of_one(run, curve) or 0.0 for run, curve in zip((a, b), curves, strict=True)]
    alike = curves[0].name == "val_loss" and _over_the_same_windows(a, b)
    return math.hypot(*each) * (SAME_WINDOWS if alike else 1.0)


def _error_of_one(reading: Reading, curve: Series) -> float | None:
    own = standard_error(reading) if curve.name == "val_loss" else None
    if own is None and len(curve) >= LEAST_FOR_NOISE:
        late = curve.part(curve.step >= curve.step[-1] / 2)
        noise = noise_of(late.value, late.step)
        own = noise.sd if noise is not None else None
    return own


def _over_the_same_windows(a: Reading, b: Reading) -> bool:
    """Whether one trainer evaluated both on the same text, which is as hard for both."""
    if a.log is None or b.log is None or a.log.format.name != b.log.format.name:
        return False
    settings = [[run.settings.get(name) for name in CHOOSE_WINDOWS] for run in (a, b)]
    same = all(x is not None and y is not None and x.value == y.value for x, y in zip(*settings, strict=True))
    return a.log.format.evaluates_same_windows and same


def seed_error(reading: Reading) -> float:
    """How far another seed would move all of a run's late losses, as one standard deviation."""
    size = _number(reading.sizes.parameters)
    if size is None and reading.log is not None and reading.log.format.name == "modded-nanogpt":
        size = SPEEDRUN_PARAMETERS
    return seed_noise(size).standard_deviation


def _number(fact: Fact | None) -> float | None:
    return fact.number if fact is not None else None


def _themselves(steps: Floats) -> Floats:
    return steps


def _tokens_of(reading: Reading) -> Spent | None:
    batches = reading.progress.batches
    return (lambda steps: amounts(batches, steps)) if batches else None


def _seconds_of(reading: Reading) -> Spent | None:
    """Seconds of training; not known where the batch changed, for the time of a step is that of the last."""
    each = reading.speed.step_seconds
    changed = len(reading.progress.batches) > 1 or reading.progress.other_work is not None
    return (lambda steps: each.number * steps) if each is not None and not changed else None


def _flops_of(reading: Reading) -> Spent | None:
    per_token, tokens = reading.sizes.flops_per_token, _tokens_of(reading)
    if per_token is None or tokens is None:
        return None
    return lambda steps: per_token.number * tokens(steps)

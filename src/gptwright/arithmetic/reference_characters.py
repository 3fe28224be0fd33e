"""The loss to expect over Tiny Shakespeare's characters, from the known runs nearby.

Scaling laws do not hold here: the data is a megabyte, every run of more than a few minutes passes over it
again and again, and validation loss rises after some thirty passes. So a run is compared with its neighbours
in log size, log tokens and log batch. Their points contain the passes, and with them memorization; dropout
and learning rate are not looked at, and their effect is in the spread.
"""

import math
from collections.abc import Sequence

from gptwright.arithmetic.reference_curves import Curve, LossBand, floor

# Same configuration on other machines: best 1.468 to 1.472, last 1.703 to 1.710. Another learning rate at the
# same size differs by 0.01 to 0.03 nats around thirty passes, and by 0.07 to 0.10 at eighty.
LIKE_RUNS_SPREAD = 0.03
PASSES_AT_BEST, SPREAD_OF_MEMORIZATION = 30, 0.07
CHARACTERS = 1_003_854
# The known runs validate on nanoGPT's split, the last tenth of the text, which is harder than the rest. Drawn
# by content over the whole text, two splits read 0.10 and 0.06 lower with the model of 0.80M parameters.
EASIER_SPLIT, SPREAD_OF_SPLITS = 0.08, 0.05
# By how much another split's training tokens differ from nanoGPT's at least: 998,691 and 998,043 do by 0.5 %,
# and who writes "1M" means nanoGPT's.
SAME_SPLIT = 0.0045
# Nats that the loss may move for each factor e to the nearest run, beyond how much the neighbours differ:
# left out one at a time, the known runs lie up to this far from what the others say.
SPREAD_PER_FACTOR = 0.25
# Nothing is said about a run farther than a factor of 3 from every known one.
REACH = math.log(3)
# A smaller batch takes more steps over the same text: half as much a difference as other text.
BATCH_WEIGHT = 0.5
# Runs nearer than this count as equally near: a sixth in size or tokens.
BLUR = 0.15


def has_another_split(train_tokens: float | None) -> bool:
    """Whether so many training characters are of another split than nanoGPT's."""
    return train_tokens is not None and abs(train_tokens / CHARACTERS - 1) > SAME_SPLIT


def character_band(
    curves: Sequence[Curve],
    parameters: float,
    tokens: float,
    tokens_per_step: float | None,
    train_tokens: float | None,
) -> LossBand | None:
    """The band for a model of `parameters` after `tokens` characters; None if no known run is near."""
    if not curves:
        return None
    loss, scatter = _likely(curves, parameters, tokens, tokens_per_step)
    distance, nearest = _nearest(curves, parameters, tokens, tokens_per_step)
    if distance > REACH:
        return None
    alike = LIKE_RUNS_SPREAD
    alike += SPREAD_OF_MEMORIZATION * math.log(max(tokens / CHARACTERS / PASSES_AT_BEST, 1.0))
    half = math.sqrt(alike**2 + scatter + (SPREAD_PER_FACTOR * distance) ** 2)
    lowest = floor("shakespeare_char", 65)
    assert lowest is not None
    least, basis = lowest.loss - lowest.margin, "between the nearest known runs over these characters"
    easier = EASIER_SPLIT if has_another_split(train_tokens) else 0.0
    best = min(
        (
            (at, _likely(curves, parameters, at, tokens_per_step)[0])
            for at, _ in nearest.points
            if at < tokens
        ),
        key=lambda each: each[1],
        default=(tokens, loss),
    )
    rises = loss > best[1] + LIKE_RUNS_SPREAD
    if easier:
        loss, least = loss - easier, least - easier - SPREAD_OF_SPLITS
        half = math.hypot(half, SPREAD_OF_SPLITS)
        basis += f", less {easier} as this is not their validation split, which is harder than most"
    return LossBand(
        low=min(max(loss - half, least), loss),
        likely=loss,
        high=loss + half + _rise_beyond(nearest, tokens),
        basis=f"{basis}; passes and memorization are included, as scaling laws do not hold for them",
        curve=nearest.name,
        source=nearest.source,
        lowest=(best[0], best[1] - easier) if rises else None,
    )


def _likely(
    curves: Sequence[Curve], parameters: float, tokens: float, tokens_per_step: float | None
) -> tuple[float, float]:
    """The mean loss of the known runs after `tokens`, the near ones first, and their variance around it."""
    far = [_distance(curve, parameters, tokens, tokens_per_step) for curve in curves]
    weights = [1 / (each**2 + BLUR**2) ** 2 for each in far]
    losses = [curve.loss_at(tokens) for curve in curves]
    loss = sum(w * one for w, one in zip(weights, losses, strict=True)) / sum(weights)
    scatter = sum(w * (one - loss) ** 2 for w, one in zip(weights, losses, strict=True)) / sum(weights)
    return loss, scatter


def _nearest(
    curves: Sequence[Curve], parameters: float, tokens: float, tokens_per_step: float | None
) -> tuple[float, Curve]:
    """The known run that is most like this one, and how far it is."""
    each = [(_distance(curve, parameters, tokens, tokens_per_step), curve) for curve in curves]
    return min(each, key=lambda one: one[0])


def _distance(curve: Curve, parameters: float, tokens: float, tokens_per_step: float | None) -> float:
    inside = min(max(tokens, curve.first_tokens), curve.last_tokens)
    steps = 0.0 if tokens_per_step is None else BATCH_WEIGHT * math.log(tokens_per_step / curve.batch)
    return math.hypot(math.log(parameters / curve.parameters), math.log(tokens / inside), steps)


def _rise_beyond(curve: Curve, tokens: float) -> float:
    """How much higher the loss is beyond the curve's end if memorization goes on as it did there."""
    if tokens <= curve.last_tokens or len(curve.points) < 2:
        return 0.0
    (before, loss_before), (last, loss_last) = curve.points[-2:]
    slope = (loss_last - loss_before) / math.log(last / before)
    return max(slope, 0.0) * math.log(tokens / last)

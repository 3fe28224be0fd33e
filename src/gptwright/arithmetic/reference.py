"""The loss to expect from a run, as a band around what comparable public runs reached.

A scaling law alone is 0.2 to 0.3 nats off, so the band starts at curves of the same data and vocabulary
(reference_curves.toml). They are shifted to another run only by differences:

- size: the difference that each law gives; the additive laws and Kaplan's are ends of the spread, and the
  middle is likely.
- tokens: along the curve where it has points; elsewhere along the longest published GPT-2 curve over the
  web, and beyond that by the laws, which lie on both sides of what was measured (docs/scaling.md).
- learning rate: on the way a run's loss is higher than that of a run that ends there. Going from the peak to
  zero takes off 0.08 to 0.15 nats (public 124M runs). So a point on the way of llm.c's curve, taken as it is,
  would be a pessimistic guess for a finished run of that length.
- batch: smaller steps need fewer tokens; how much fewer is Kaplan's bound, and lowers only the low end.

Low to high is where sound runs of this recipe ended up in the checks of tests/arithmetic/test_reference.py;
there are too few public runs to give it a share.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from gptwright.arithmetic.reference_characters import character_band
from gptwright.arithmetic.reference_curves import (
    Curve,
    Floor,
    LossBand,
    curves,
    dataset_family,
    floor,
    known_data,
)
from gptwright.arithmetic.scaling import (
    Band,
    critical_batch,
    effective_tokens,
    gain_band,
    size_gain_band,
)

__all__ = ["Floor", "LossBand", "dataset_family", "expected_loss", "floor"]

# What annealing the learning rate from its peak to zero takes off, in nats: the drop over the last 21 to 30 %
# of public 124M runs with a constant rate before (modded-nanogpt logs, 2024). Other sizes are not measured.
ANNEAL_LOW, ANNEAL_HIGH = 0.08, 0.15
ANNEAL = (ANNEAL_LOW + ANNEAL_HIGH) / 2
# Sound runs of one recipe differ: 124M over 10B tokens of FineWeb-Edu ended at 3.07 to 3.09 with a learning
# rate of 6e-4 in three hands, at 3.03 to 3.04 with three times that; llm.c's own script gave 3.272 to 3.29.
RECIPE_SPREAD = 0.05
# OpenAI's GPT-2 sizes lie up to this far, for each factor e of size, from the middle of the laws' differences
# (3.12, 2.84, 2.67, 2.54 on OpenWebText; nanoGPT README).
SIZE_SPREAD = 0.04
# The share by which a difference along another corpus' curve may be off: from 2B to 10B tokens FineWeb-Edu
# gave 0.29 nats where FineWeb's curve gives 0.25.
SHAPE_SPREAD = 0.25
# Wider than this either way, a band no longer tells a good run from a bad one.
WIDEST = 0.35
# The laws were fitted where a model is past its first tokens: at least one a parameter.
LEAST_TOKENS_PER_PARAMETER = 1.0
# The first steps are decided by warm-up and batch, not by tokens: with 32 thousand tokens a step a 124M model
# is at 4.6 nats after 65M tokens, llm.c with half a million at 8. llm.c warms up for 700 steps.
EARLY_STEPS = 2000
# Kaplan's bound for memorization to cost less than 2 %: unique tokens > 5,000 × parameters^0.74 (arXiv
# 2001.08361, equation 4.4). Repeated data far under it are memorized, which no law here can show.
MEMORIZES_BELOW, FEW_PASSES = 0.1, 4.0


# The known runs over web text have a context of 1,024. With half of it a 20.6M model over OpenWebText is no
# worse (sdcodehub's ablation of December 2025); of less nothing is published, and a token with little before
# it is harder to predict.
LEAST_CONTEXT = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """What the laws look at; `tokens` are those that fresh data would need."""

    parameters: float
    non_embedding: float
    tokens: float


@dataclass(frozen=True, slots=True)
class _Estimate:
    loss: float
    half: float
    curve: Curve


def expected_loss(
    *,
    dataset: str,
    parameters: int,
    tokens: float,
    vocab_size: int | None,
    unique_tokens: float | None = None,
    tokens_per_step: float | None = None,
    recipe: str = "gpt2",
    non_embedding: int | None = None,
    lr_fraction: float | None = 0.0,
    block_size: int | None = None,
    references: Sequence[Curve] | None = None,
) -> LossBand | None:
    """The validation loss that a sound run of this kind reaches after `tokens`.

    Args:
        dataset: its name or path.
        parameters: nanoGPT's count.
        tokens: training tokens seen.
        vocab_size: None is taken to be the usual one of that data.
        unique_tokens: size of the training split, for repeated data and to know the split.
        tokens_per_step: the batch; None is taken to be near half a million.
        recipe: `gpt2` (GPT-2's blocks, AdamW) or `modern`; nothing is known of another.
        non_embedding: parameters without embeddings; estimated if not given.
        lr_fraction: the learning rate then as a share of its peak: 0 for a run that ends there, None if it is
            not known, which makes the band wider.
        block_size: its context; None is taken to be that of the known runs.
        references: the curves to go by; all known ones if not given.

    Returns:
        None where nothing comparable is known: other data or vocabulary, too far from every known run, a
        much shorter context, the first steps, or data repeated so often for the model's size that it is
        memorized.
    """
    data = known_data(dataset, vocab_size)
    if data is None or parameters <= 0 or tokens <= 0:
        return None
    pool = [c for c in (curves() if references is None else references) if c.family == data[0]]
    if data[0] == "shakespeare-char":
        if recipe != "gpt2":
            return None
        return character_band(pool, parameters, tokens, tokens_per_step, unique_tokens)
    pool = [curve for curve in pool if curve.recipe == recipe]
    beginning = _at_the_beginning(parameters, tokens, tokens_per_step)
    short = block_size is not None and block_size < LEAST_CONTEXT
    if not pool or short or beginning or _memorizes(parameters, tokens, unique_tokens):
        return None
    run = _Run(
        parameters=parameters,
        non_embedding=non_embedding or _usual_non_embedding(parameters),
        tokens=tokens if unique_tokens is None else effective_tokens(unique=unique_tokens, total=tokens),
    )
    estimates = [_shifted(curve, run) for curve in pool]
    return _band(estimates, run, lr_fraction, tokens_per_step, assumed_vocabulary=vocab_size is None)


def _band(
    estimates: list[_Estimate],
    run: _Run,
    lr_fraction: float | None,
    tokens_per_step: float | None,
    *,
    assumed_vocabulary: bool,
) -> LossBand | None:
    weights = [1 / estimate.half**2 for estimate in estimates]
    loss = sum(w * e.loss for w, e in zip(weights, estimates, strict=True)) / sum(weights)
    scatter = sum(w * (e.loss - loss) ** 2 for w, e in zip(weights, estimates, strict=True)) / sum(weights)
    nearest = min(estimates, key=lambda estimate: estimate.half)
    half = math.sqrt(nearest.half**2 + scatter)
    if half > WIDEST:
        return None
    least, most = (0.0, 1.0) if lr_fraction is None else (lr_fraction, lr_fraction)
    smaller_steps, larger_steps = _batch_effect(run, loss, tokens_per_step, nearest.curve.batch)
    notes = ["shifted from runs over the same data by the differences of scaling laws"]
    if lr_fraction is None:
        notes.append(f"the learning rate may still be high, which costs up to {ANNEAL_HIGH} nats")
    elif lr_fraction >= 0.005:
        notes.append(f"the learning rate is still {lr_fraction:.0%} of its peak")
    if tokens_per_step is None:
        notes.append("half a million tokens a step are assumed")
    if assumed_vocabulary:
        notes.append("GPT-2's vocabulary is assumed")
    return LossBand(
        low=loss - half + least * ANNEAL_LOW - smaller_steps,
        likely=loss + ANNEAL * (least + most) / 2,
        high=loss + half + most * ANNEAL_HIGH + larger_steps,
        basis="; ".join(notes),
        curve=nearest.curve.name,
        source=nearest.curve.source,
    )


def _shifted(curve: Curve, run: _Run) -> _Estimate:
    """What `curve` says of a finished run of another size and length."""
    anchor = min(max(run.tokens, curve.first_tokens), curve.last_tokens)
    fresh = (
        anchor if curve.unique_tokens is None else effective_tokens(unique=curve.unique_tokens, total=anchor)
    )
    size = size_gain_band(
        run.tokens,
        (curve.parameters, run.parameters),
        non_embedding=(curve.non_embedding, run.non_embedding),
    )
    longer = _token_gain(curve, fresh, run.tokens)
    loss = _finished(curve, anchor) - size.likely - longer.likely
    parts = (
        RECIPE_SPREAD,
        (size.high - size.low) / 2,
        SIZE_SPREAD * math.log(run.parameters / curve.parameters),
        (longer.high - longer.low) / 2,
        curve.lr_at(anchor) * (ANNEAL_HIGH - ANNEAL_LOW) / 2,
    )
    return _Estimate(loss, math.sqrt(sum(part**2 for part in parts)), curve)


def _finished(curve: Curve, tokens: float) -> float:
    """What the run would have ended with, had its learning rate decayed by `tokens`."""
    return curve.loss_at(tokens) - ANNEAL * curve.lr_at(tokens)


def _token_gain(model: Curve | _Run, before: float, after: float) -> Band:
    """Nats that going from `before` to `after` tokens takes off: a shape, and laws beyond its reach."""
    if after < before:
        back = _token_gain(model, after, before)
        return Band(-back.high, -back.likely, -back.low, back.basis)
    shape = _shape()
    start, end = (min(max(t, shape.first_tokens), shape.last_tokens) for t in (before, after))
    # Between two points of a log its noise can point upwards; more tokens never cost anything.
    inside = max(0.0, _finished(shape, start) - _finished(shape, end))
    low, likely, high = inside * (1 - SHAPE_SPREAD), inside, inside * (1 + SHAPE_SPREAD)
    for left, right in ((before, min(after, shape.first_tokens)), (max(before, shape.last_tokens), after)):
        if right > left:
            outside = gain_band(model.parameters, left, right, non_embedding=model.non_embedding)
            low, likely, high = low + outside.low, likely + outside.likely, high + outside.high
    return Band(low, likely, high, f"the shape of {shape.name}, beyond it the laws")


def _batch_effect(
    run: _Run, loss: float, tokens_per_step: float | None, reference_batch: float
) -> tuple[float, float]:
    """How much lower a smaller batch, or higher a larger one, can end at the same tokens, in nats.

    A bound, not an estimate: a public 757M run over FineWeb with 32 thousand tokens a step was a third of it
    below the likely loss.
    """
    if tokens_per_step is None:
        return 0.0, 0.0
    critical = critical_batch(loss)
    worth = run.tokens * (1 + reference_batch / critical) / (1 + tokens_per_step / critical)
    gained = _token_gain(run, run.tokens, worth).likely
    return max(gained, 0.0), max(-gained, 0.0)


@cache
def _shape() -> Curve:
    """llm.c's 124M curve over FineWeb: of those with points on the way, the most tokens a parameter."""
    return next(curve for curve in curves() if curve.name == "llm.c 124M")


def _at_the_beginning(parameters: int, tokens: float, tokens_per_step: float | None) -> bool:
    if tokens < LEAST_TOKENS_PER_PARAMETER * parameters or tokens < _shape().first_tokens:
        return True
    usual = _shape().batch
    alike = tokens_per_step is not None and usual / 2 <= tokens_per_step <= usual * 2
    few_steps = tokens < EARLY_STEPS / 2 * (tokens_per_step or usual)
    return not alike and (tokens < EARLY_STEPS * usual or few_steps)


def _memorizes(parameters: int, tokens: float, unique_tokens: float | None) -> bool:
    if unique_tokens is None or tokens <= FEW_PASSES * unique_tokens:
        return False
    wanted = 5e3 * float(parameters**0.74)
    return unique_tokens < MEMORIZES_BELOW * wanted


def _usual_non_embedding(parameters: int) -> float:
    """Parameters without embeddings of a GPT-2 shape (64 wide for each layer) with GPT-2's vocabulary.

    Solves 50,304·width + 12·width³ / 64 = parameters by halving.
    """
    low, high = 1.0, 1e5
    for _ in range(60):
        width = (low + high) / 2
        if 50_304 * width + 12 * width**3 / 64 > parameters:
            high = width
        else:
            low = width
    return 12 * low**3 / 64

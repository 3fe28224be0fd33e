"""Two runs side by side: first what is not held fixed, then who is ahead, and by how much against the noise.

A difference is credited to a change only when exactly one thing that can move the loss was changed. Losses
over different vocabularies or corpora are different quantities, and nothing is said about who is ahead.
Points are compared at equal tokens, equal seconds and equal FLOPs; one run's curve is interpolated between
its evaluations, never continued beyond them.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from gptwright import units
from gptwright.arithmetic.evaluation import seed_noise
from gptwright.arithmetic.reference import dataset_family
from gptwright.arithmetic.trend import noise_of
from gptwright.diagnose.evaluation import standard_error
from gptwright.diagnose.reading import Reading
from gptwright.diagnose.rules.failures import non_finite_loss
from gptwright.diagnose.rules.learning import divergence
from gptwright.diagnose.scale import loss_scale
from gptwright.diagnose.series import Series, train_loss, val_loss
from gptwright.facts import Fact, Value, derived
from gptwright.findings import Action, Confidence, Finding, Severity
from gptwright.record.arrays import Floats

MOST_POINTS = 12
# Sizes of one corpus as different people round them.
SAME_TEXT = 0.05
# Runs of one length end within a log interval of each other.
SAME_AMOUNT = 0.02
# 1.96 standard errors on either side hold 95 % of differences that are noise alone.
SIGNIFICANT = 1.96
# modded-nanogpt does not print its size; seed noise was measured on its own runs.
SPEEDRUN_PARAMETERS = 124_000_000

# Settings that change together count as one thing; another cut of the same step changes nothing.
THINGS: dict[str, tuple[str, ...]] = {
    "depth": ("n_layer",),
    "width": ("n_embd",),
    "heads": ("n_head",),
    "context": ("block_size",),
    "tokens per step": ("tokens_per_step",),
    "dropout": ("dropout",),
    "learning rate": ("learning_rate", "min_lr"),
    "decay": ("decay_lr", "lr_schedule", "cooldown_fraction"),
    "schedule": ("warmup_iters", "lr_decay_iters", "max_iters"),
    "optimizer": (
        "optimizer",
        *("weight_decay", "beta1", "beta2", "grad_clip"),
        *("muon_learning_rate", "muon_momentum", "muon_steps", "muon_warmup_iters"),
    ),
    "architecture": (
        *("arch", "bias", "tie_weights", "rope", "rope_base", "rms_norm", "qk_norm", "relu2"),
        *("zero_init", "smear"),
    ),
    "sampling": ("sampling",),
    "start": ("init_from",),
    "training text": ("train_tokens",),
    "trainer": ("trainer",),
}
# The first field of these brings the others with it; without it each of them is a thing of its own.
LED = ("optimizer", "architecture")
# Listed as differences, but they do not move the loss at equal tokens beyond floating-point noise.
HARMLESS = (
    "batch_size",
    "gradient_accumulation_steps",
    "device",
    "device_count",
    "dtype",
    "compile",
    "eval_iters",
    "seed",
    "torch",
)
IDENTITY = ("dataset", "vocab_size", "train_tokens", "val_tokens")


class Verdict(StrEnum):
    """Who is ahead."""

    A_BETTER = "a-better"
    B_BETTER = "b-better"
    WITHIN_NOISE = "within-noise"
    CONFOUNDED = "confounded"
    NOT_COMPARABLE = "not-comparable"


@dataclass(frozen=True, slots=True)
class Difference:
    """A setting that the two runs do not share."""

    field: str
    a: Value
    b: Value


@dataclass(frozen=True, slots=True)
class Point:
    """Both losses where the runs had used as much of something (tokens, seconds or FLOPs)."""

    at: float
    a: float
    b: float
    standard_error: float

    @property
    def delta(self) -> float:
        """b less a; negative where b is ahead."""
        return self.b - self.a


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two runs side by side.

    Attributes:
        differences: settings that differ.
        comparable: whether their losses are the same quantity.
        reasons: why not, or what to keep in mind.
        at_equal_tokens: points by tokens seen.
        at_equal_seconds: points by training time.
        at_equal_flops: points by FLOPs spent.
        verdict: who is ahead.
        findings: the same in words, with evidence.
    """

    differences: tuple[Difference, ...]
    comparable: bool
    reasons: tuple[str, ...]
    at_equal_tokens: tuple[Point, ...]
    at_equal_seconds: tuple[Point, ...]
    at_equal_flops: tuple[Point, ...]
    verdict: Verdict
    findings: tuple[Finding, ...]


def compare(a: Reading, b: Reading) -> Comparison:
    """Compares two runs."""
    differences = _differences(a, b)
    reasons = _incomparable(a, b)
    if reasons:
        return Comparison(
            differences, False, reasons, (), (), (), Verdict.NOT_COMPARABLE, (_refusal(a, b, reasons),)
        )
    changed = _changed_things(a, b)
    by_tokens = _points(a, b, lambda reading: reading.speed.tokens_per_step, or_steps=True)
    if not by_tokens:
        apart = (_apart(a, b),)
        verdict, refusal = Verdict.NOT_COMPARABLE, _refusal(a, b, apart)
        return Comparison(differences, False, apart, (), (), (), verdict, (refusal,))
    by_seconds = _points(a, b, lambda reading: reading.speed.step_seconds)
    by_flops = _points(a, b, _flops_per_step)
    broken = _broken(a), _broken(b)
    verdict = _verdict(by_tokens, changed, broken)
    findings = (*_failures(broken), _finding(verdict, (by_tokens, by_seconds), changed, a, b))
    return Comparison(differences, True, _remarks(a, b), by_tokens, by_seconds, by_flops, verdict, findings)


def _value(reading: Reading, field: str) -> Value:
    if field == "trainer":
        return reading.log.format.name if reading.log is not None else None
    if field == "tokens_per_step":
        return reading.speed.tokens_per_step.value if reading.speed.tokens_per_step is not None else None
    if field == "device":
        return (
            reading.machine.name.value
            if reading.machine.name is not None
            else reading.settings.word("device")
        )
    fact = reading.settings.get(field)
    if fact is not None:
        return fact.value
    # A trainer that has one model and one optimizer does not say which.
    alone = reading.log is not None and reading.log.format.gpt2_shaped
    return {"arch": "gpt2", "optimizer": "adamw"}.get(field) if alone else None


def _differences(a: Reading, b: Reading) -> tuple[Difference, ...]:
    """Settings that both runs know and that differ."""
    fields = dict.fromkeys([*IDENTITY, *(f for fields in THINGS.values() for f in fields), *HARMLESS])
    found = []
    for field in fields:
        ours, theirs = _value(a, field), _value(b, field)
        if _differs(ours, theirs):
            found.append(Difference(field, ours, theirs))
    return tuple(found)


def _same(a: Value, b: Value) -> bool:
    numbers = isinstance(a, int | float) and isinstance(b, int | float)
    return math.isclose(float(a), float(b), rel_tol=1e-9) if numbers else a == b  # type: ignore[arg-type]


def _incomparable(a: Reading, b: Reading) -> tuple[str, ...]:
    """Why the two losses are not the same quantity."""
    reasons = []
    vocabularies = a.vocab_size, b.vocab_size
    sizes = {fact.value for fact in vocabularies if fact is not None}
    # GPT-2's 50,257 tokens are often padded to 50,304: the same tokenizer.
    if len(sizes) == 2 and sizes != {50257, 50304}:
        reasons.append("different vocabulary: a token is another amount of text")
    datasets = _value(a, "dataset"), _value(b, "dataset")
    if None not in datasets and not _same_corpus(str(datasets[0]), str(datasets[1])):
        reasons.append(f"different data: {datasets[0]} and {datasets[1]}")
    splits = _value(a, "val_tokens"), _value(b, "val_tokens")
    if not reasons and None not in splits and splits[0] != splits[1]:
        reasons.append(f"different validation sets: {splits[0]:,} and {splits[1]:,} tokens")
    if not (len(val_loss(a)) and len(val_loss(b))):
        if loss_scale(a) != loss_scale(b):
            reasons.append("one logs a sum over micro-batches")
        if _value(a, "dropout") != _value(b, "dropout"):
            reasons.append("only training losses are there, and dropout lifts one of them more")
    if not reasons and not (len(_curve(a, b)[0]) and len(_curve(a, b)[1])):
        reasons.append("they have no loss of the same kind in their logs")
    return tuple(reasons)


def _apart(a: Reading, b: Reading) -> str:
    """Why no two values of the curves can be held side by side."""
    unknown = [name for name, r in (("a", a), ("b", b)) if r.speed.tokens_per_step is None]
    if len(unknown) == 1:
        return f"how many tokens a step of {unknown[0]} holds is not known"
    return "their evaluations have no stretch in common"


def _same_corpus(a: str, b: str) -> bool:
    families = dataset_family(a), dataset_family(b)
    return a == b or (families[0] is not None and families[0] == families[1])


def _remarks(a: Reading, b: Reading) -> tuple[str, ...]:
    remarks = []
    contexts = _value(a, "block_size"), _value(b, "block_size")
    if None not in contexts and contexts[0] != contexts[1]:
        remarks.append("different context: a longer one alone lowers the loss")
    if not (len(val_loss(a)) and len(val_loss(b))):
        remarks.append("training losses are compared, validation is missing")
    for name, reading in (("a", a), ("b", b)):
        if _value(reading, "dataset") is None and _value(reading, "vocab_size") is None:
            remarks.append(f"the data of {name} is not named: comparable only if it is the other's")
        if reading.speed.tokens_per_step is None:
            remarks.append(f"tokens per step of {name} are not known: compared by steps")
    return tuple(remarks)


def _changed_things(a: Reading, b: Reading) -> tuple[str, ...]:
    """What was changed that can move the loss, things that belong together counted once."""
    things = []
    for thing, fields in THINGS.items():
        differing = [f for f in fields if _differs(_value(a, f), _value(b, f))]
        if thing == "training text" and _as_much_text(a, b):
            differing = []
        if thing in LED and fields[0] not in differing:
            things += differing
        elif differing:
            things.append(thing)
    # Heads follow width at a fixed head size.
    if {"width", "heads"} <= set(things):
        sizes = [_head_size(r) for r in (a, b)]
        if None not in sizes and sizes[0] == sizes[1]:
            things.remove("heads")
    return tuple(things)


def _differs(a: Value, b: Value) -> bool:
    return a is not None and b is not None and not _same(a, b)


def _as_much_text(a: Reading, b: Reading) -> bool:
    """Whether two sizes of the training split are one size, counted or rounded differently."""
    ours, theirs = a.settings.number("train_tokens"), b.settings.number("train_tokens")
    return ours is None or theirs is None or math.isclose(ours, theirs, rel_tol=SAME_TEXT)


def _head_size(reading: Reading) -> float | None:
    width, heads = reading.settings.number("n_embd"), reading.settings.number("n_head")
    return width / heads if width and heads else None


def _flops_per_step(reading: Reading) -> Fact | None:
    flops, tokens = reading.sizes.flops_per_token, reading.speed.tokens_per_step
    if flops is None or tokens is None:
        return None
    return derived("flops_per_step", flops.number * tokens.number, "FLOPs per token × tokens per step")


def _curve(a: Reading, b: Reading) -> tuple[Series, Series]:
    """Validation of both, or, where one has none, training lines of both."""
    curves = val_loss(a), val_loss(b)
    if len(curves[0]) and len(curves[1]):
        return curves
    if a.log is not None and b.log is not None and a.log.format.train_loss == b.log.format.train_loss:
        return train_loss(a), train_loss(b)
    return curves[0].part(np.zeros(len(curves[0]), np.bool_)), curves[1].part(
        np.zeros(len(curves[1]), np.bool_)
    )


def _same_curve(a: Reading, b: Reading) -> bool:
    """Whether two runs have the same losses at the same steps."""
    ours, theirs = _curve(a, b)
    return np.array_equal(ours.step, theirs.step) and np.array_equal(ours.value, theirs.value)


def _points(
    a: Reading, b: Reading, unit: Callable[[Reading], Fact | None], *, or_steps: bool = False
) -> tuple[Point, ...]:
    """Both losses at equal amounts of `unit` × steps: at evaluations that lie in the range of both.

    With `or_steps`, runs of which neither tells the unit are compared at equal steps.
    """
    units = unit(a), unit(b)
    if None in units and not (or_steps and units == (None, None)):
        return ()
    scales = [u.number if u is not None else 1.0 for u in units]
    curves = _curve(a, b)
    amounts: list[Floats] = [
        np.float64(scale) * curve.step.astype(np.float64) for curve, scale in zip(curves, scales, strict=True)
    ]
    inside = _common(amounts)
    if len(inside) == 0:
        return ()
    values = [
        np.interp(np.log1p(inside), np.log1p(x), curve.value)
        for x, curve in zip(amounts, curves, strict=True)
    ]
    errors = [_point_error(r, curve) for r, curve in zip((a, b), curves, strict=True)]
    error = math.hypot(*errors)
    return tuple(Point(float(x), float(u), float(v), error) for x, u, v in zip(inside, *values, strict=True))


def _common(amounts: Sequence[Floats]) -> Floats:
    """Amounts at which one curve has a value and the other is not extrapolated, thinned."""
    low, high = max(x[0] for x in amounts), min(x[-1] for x in amounts)
    grid = np.unique(np.concatenate([x[(x >= low) & (x <= high) & (x > 0)] for x in amounts]))
    if len(grid) > MOST_POINTS:
        grid = grid[np.unique(np.linspace(0, len(grid) - 1, MOST_POINTS).round().astype(int))]
    return grid


def _point_error(reading: Reading, curve: Series) -> float:
    """One standard error of a point: the evaluation's own, and what another seed would give."""
    own = standard_error(reading) if curve.name == "val_loss" else None
    if own is None and len(curve) >= 6:
        late = curve.part(curve.step >= curve.step[-1] / 2)
        noise = noise_of(late.value, late.step)
        own = noise.sd if noise is not None else None
    parameters = reading.sizes.parameters
    size = parameters.number if parameters is not None else None
    if size is None and _value(reading, "trainer") == "modded-nanogpt":
        size = SPEEDRUN_PARAMETERS
    seed = seed_noise(size)
    return math.hypot(own or 0.0, seed.standard_deviation)


def _broken(reading: Reading) -> Finding | None:
    """That a run ended in losses that are no numbers, or diverged; the other is ahead of it."""
    for rule in (non_finite_loss, divergence):
        for verdict in rule(reading):
            if isinstance(verdict, Finding):
                return verdict
    return None


def _failures(broken: tuple[Finding | None, Finding | None]) -> tuple[Finding, ...]:
    """The failures, each with the run's name before it."""
    return tuple(
        replace(found, message=f"Run {name}: {found.message}")
        for name, found in zip("ab", broken, strict=True)
        if found is not None
    )


def _verdict(
    points: Sequence[Point], changed: Sequence[str], broken: tuple[Finding | None, Finding | None]
) -> Verdict:
    last = points[-1]
    if (broken[0] is None) != (broken[1] is None):
        if len(changed) > 1:
            return Verdict.CONFOUNDED
        return Verdict.A_BETTER if broken[1] is not None else Verdict.B_BETTER
    if abs(last.delta) <= SIGNIFICANT * last.standard_error:
        return Verdict.WITHIN_NOISE
    if len(changed) > 1:
        return Verdict.CONFOUNDED
    return Verdict.B_BETTER if last.delta < 0 else Verdict.A_BETTER


def _refusal(a: Reading, b: Reading, reasons: Sequence[str]) -> Finding:
    facts = [f for r in (a, b) for f in (*r.settings.facts("dataset", "vocab_size", "val_tokens"),)]
    return Finding(
        id="not-comparable",
        severity=Severity.WARNING,
        confidence=Confidence.CERTAIN,
        message=f"Nothing can be said about who is ahead: {'; '.join(reasons)}.",
        evidence=tuple(facts),
        actions=(Action("Evaluate both models on the same text, in bits per byte."),),
    )


def _finding(
    verdict: Verdict,
    by: tuple[Sequence[Point], Sequence[Point]],
    changed: Sequence[str],
    a: Reading,
    b: Reading,
) -> Finding:
    points, by_seconds = by
    last = points[-1]
    ahead, behind = ("b", "a") if last.delta < 0 else ("a", "b")
    counted = a.speed.tokens_per_step is not None and b.speed.tokens_per_step is not None
    at = f"{units.count(last.at)} tokens" if counted else f"step {last.at:,.0f}"
    gap = f"{abs(last.delta):.4f} ± {last.standard_error:.4f} nats after {at}"
    if verdict is Verdict.WITHIN_NOISE and _same_curve(a, b):
        text = "Both curves are the same to the last digit: one log twice, or a run repeated to the bit."
    elif verdict is Verdict.WITHIN_NOISE:
        text = f"Within the noise: {ahead} is ahead by {gap}; another seed could turn it around."
    elif abs(last.delta) <= SIGNIFICANT * last.standard_error:
        text = f"Before one of them broke they were within the noise of each other: {gap}."
    elif verdict is Verdict.CONFOUNDED:
        text = (
            f"{ahead} is ahead by {gap}, and {len(changed)} things were changed ({', '.join(changed)}): no"
            " single one of them may be credited."
        )
    else:
        text = f"{ahead} is ahead of {behind} by {gap}; {_credit(changed, a, b)}."
    if by_seconds and (by_seconds[-1].delta < 0) != (last.delta < 0):
        text += f" At equal time it is the other way round: {abs(by_seconds[-1].delta):.4f} nats."
    text += _best_of_each(a, b, last)
    curves = _curve(a, b)
    losses = (
        derived(f"loss_{name}", value, f"of {name} after {at}", unit="nats")
        for name, value in (("a", last.a), ("b", last.b))
    )
    return Finding(
        id="comparison",
        severity=Severity.INFO,
        confidence=Confidence.CERTAIN if abs(last.delta) > 3 * last.standard_error else Confidence.LIKELY,
        message=text,
        evidence=(*losses, *(curve.fact(int(np.argmin(curve.value))) for curve in curves)),
    )


def _credit(changed: Sequence[str], a: Reading, b: Reading) -> str:
    """What the difference may be credited to, as far as the settings are known."""
    if changed:
        return f"only {changed[0]} was changed"
    unknown = [
        name for name, reading in (("a", a), ("b", b)) if reading.settings.get("learning_rate") is None
    ]
    if unknown:
        return f"what was changed is not known, as the settings of {' and '.join(unknown)} are not"
    return "nothing that is known was changed, so something that is not in the records was"


def _best_of_each(a: Reading, b: Reading, last: Point) -> str:
    """Where each run was at its best, if that is not where they are compared."""
    parts, elsewhere = [], False
    for name, reading, curve in zip("ab", (a, b), _curve(a, b), strict=True):
        best = int(np.argmin(curve.value))
        step, per_step = int(curve.step[best]), reading.speed.tokens_per_step
        amount = step * per_step.number if per_step is not None else float(step)
        elsewhere = elsewhere or abs(amount / last.at - 1) > SAME_AMOUNT
        at = f"{units.count(amount)} tokens" if per_step is not None else f"step {step:,}"
        parts.append(f"{name} {curve.value[best]:.4f} after {at}")
    return f" Best of each: {', '.join(parts)}." if elsewhere else ""

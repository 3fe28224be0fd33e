"""Who is ahead, and the findings that say so."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gptwright import units
from gptwright.diagnose.compare.outcome import Point, Verdict
from gptwright.diagnose.compare.points import loss_curves
from gptwright.diagnose.reading import Reading
from gptwright.diagnose.rules.failures import non_finite_loss
from gptwright.diagnose.rules.learning import divergence
from gptwright.facts import derived
from gptwright.findings import Action, Confidence, Finding, Severity

# Runs of one length end within a log interval of each other.
SAME_AMOUNT = 0.02
# So many standard errors leave no doubt which loss is lower.
CERTAIN = 3


def failures(a: Reading, b: Reading) -> tuple[Finding | None, Finding | None]:
    """That a run ended in losses that are no numbers, or diverged, with its name before it; None if not."""
    return _failure("a", a), _failure("b", b)


def verdict_of(
    points: Sequence[Point], changed: Sequence[str], failed: tuple[Finding | None, Finding | None]
) -> Verdict:
    """Who is ahead at the last of the points; a run that failed is behind one that did not.

    Args:
        points: both losses at equal tokens, at least one.
        changed: the things that were changed and can move the loss.
        failed: how each of the runs failed.
    """
    last = points[-1]
    one_failed = (failed[0] is None) != (failed[1] is None)
    if not one_failed and not last.significant:
        return Verdict.WITHIN_NOISE
    if len(changed) > 1:
        return Verdict.CONFOUNDED
    b_ahead = failed[0] is not None if one_failed else last.delta < 0
    return Verdict.B_BETTER if b_ahead else Verdict.A_BETTER


def refusal(a: Reading, b: Reading, reasons: Sequence[str]) -> Finding:
    """That the two cannot be compared, and why."""
    named = ("dataset", "vocab_size", "val_tokens")
    return Finding(
        id="not-comparable",
        severity=Severity.WARNING,
        confidence=Confidence.CERTAIN,
        message=f"Nothing can be said about who is ahead: {'; '.join(reasons)}.",
        evidence=tuple(fact for reading in (a, b) for fact in reading.settings.facts(*named)),
        actions=(Action("Evaluate both models on the same text, in bits per byte."),),
    )


def who_is_ahead(
    verdict: Verdict,
    by_tokens: Sequence[Point],
    by_seconds: Sequence[Point],
    changed: Sequence[str],
    runs: tuple[Reading, Reading],
) -> Finding:
    """The verdict in words, with both losses at the last point and the best of each run as evidence."""
    last = by_tokens[-1]
    at = _amount(last.at, counted=all(run.speed.tokens_per_step is not None for run in runs))
    text = _in_words(verdict, last, at, changed, runs)
    if by_seconds and (by_seconds[-1].delta < 0) != (last.delta < 0):
        text += f" At equal time it is the other way round: {abs(by_seconds[-1].delta):.4f} nats."
    losses = (
        derived(f"loss_{name}", value, f"of {name} after {at}", unit="nats")
        for name, value in (("a", last.a), ("b", last.b))
    )
    best = (curve.fact(int(np.argmin(curve.value))) for curve in loss_curves(*runs))
    certain = abs(last.delta) > CERTAIN * last.standard_error
    return Finding(
        id="comparison",
        severity=Severity.INFO,
        confidence=Confidence.CERTAIN if certain else Confidence.LIKELY,
        message=text + _best_of_each(runs, last),
        evidence=(*losses, *best),
    )


def _failure(name: str, reading: Reading) -> Finding | None:
    for rule in (non_finite_loss, divergence):
        for found in rule(reading):
            if isinstance(found, Finding):
                return replace(found, message=f"Run {name}: {found.message}")
    return None


def _in_words(
    verdict: Verdict, last: Point, at: str, changed: Sequence[str], runs: tuple[Reading, Reading]
) -> str:
    """The first sentence of the finding."""
    ahead, behind = ("b", "a") if last.delta < 0 else ("a", "b")
    gap = f"{abs(last.delta):.4f} ± {last.standard_error:.4f} nats after {at}"
    if verdict is Verdict.WITHIN_NOISE:
        return f"Within the noise: {ahead} is ahead by {gap}; another seed could turn it around."
    if not last.significant:
        return f"Before one of them broke they were within the noise of each other: {gap}."
    if verdict is Verdict.CONFOUNDED:
        things = f"{len(changed)} things were changed ({', '.join(changed)})"
        return f"{ahead} is ahead by {gap}, and {things}: no single one of them may be credited."
    return f"{ahead} is ahead of {behind} by {gap}; {_credit(changed, runs)}."


def _credit(changed: Sequence[str], runs: tuple[Reading, Reading]) -> str:
    """What the difference may be credited to, as far as the settings are known."""
    if changed:
        return f"only {changed[0]} was changed"
    unknown = [n for n, run in zip("ab", runs, strict=True) if run.settings.get("learning_rate") is None]
    if unknown:
        return f"what was changed is not known, as the settings of {' and '.join(unknown)} are not"
    return "nothing that is known was changed, so something that is not in the records was"


def _best_of_each(runs: tuple[Reading, Reading], last: Point) -> str:
    """Where each run was at its best, if that is not where they are compared."""
    parts, elsewhere = [], False
    for name, reading, curve in zip("ab", runs, loss_curves(*runs), strict=True):
        best = int(np.argmin(curve.value))
        per_step = reading.speed.tokens_per_step
        amount = int(curve.step[best]) * (per_step.number if per_step is not None else 1.0)
        elsewhere = elsewhere or abs(amount / last.at - 1) > SAME_AMOUNT
        parts.append(f"{name} {curve.value[best]:.4f} after {_amount(amount, counted=per_step is not None)}")
    return f" Best of each: {', '.join(parts)}." if elsewhere else ""


def _amount(amount: float, *, counted: bool) -> str:
    return f"{units.count(amount)} tokens" if counted else f"step {amount:,.0f}"

"""Who is ahead, and the findings that say so."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gptwright import units
from gptwright.diagnose.compare.changes import fields_of, idle_changes
from gptwright.diagnose.compare.late import Late
from gptwright.diagnose.compare.outcome import Point, Verdict
from gptwright.diagnose.compare.pace import same_pace
from gptwright.diagnose.compare.points import in_bits_a_byte, loss_curves, same_curve
from gptwright.diagnose.compare.refusal import not_the_cause
from gptwright.diagnose.reading import Reading
from gptwright.diagnose.rules.failures import non_finite_loss
from gptwright.diagnose.rules.learning import divergence
from gptwright.facts import Fact, derived
from gptwright.findings import Confidence, Finding, Severity

# Runs of one length end within a log interval of each other.
SAME_AMOUNT = 0.02
# So many standard errors leave no doubt which loss is lower.
CERTAIN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class SideBySide:
    """Two runs that can be compared, and what a verdict on them rests on.

    Attributes:
        runs: a and b.
        by_tokens: both losses at equal tokens, at least one point.
        by_seconds: both at equal training time.
        late: the mean over the late evaluations, where it says more than the last.
        changed: the things that were changed and can move the loss.
        failed: how each of the runs failed; None where it did not.
    """

    runs: tuple[Reading, Reading]
    by_tokens: Sequence[Point]
    by_seconds: Sequence[Point]
    late: Late | None
    changed: Sequence[str]
    failed: tuple[Finding | None, Finding | None]

    @property
    def last(self) -> Point:
        """The last point that both have."""
        return self.by_tokens[-1]

    @property
    def decisive(self) -> Point:
        """What the verdict rests on."""
        return self.late.point if self.late is not None else self.last

    @property
    def ahead(self) -> str:
        """Which loss is lower there."""
        return "b" if self.decisive.delta < 0 else "a"

    @property
    def behind(self) -> str:
        """Which loss is higher there."""
        return "a" if self.ahead == "b" else "b"

    @property
    def only_failure(self) -> str | None:
        """The one run that failed; None where none did, or both."""
        names = [name for name, how in zip("ab", self.failed, strict=True) if how is not None]
        return names[0] if len(names) == 1 else None


def failure_of(name: str, reading: Reading) -> Finding | None:
    """That a run ended in losses that are no numbers, or diverged, with its name before it; None if not."""
    for rule in (non_finite_loss, divergence):
        for found in rule(reading):
            if isinstance(found, Finding):
                return replace(found, message=f"Run {name}: {found.message}")
    return None


def verdict_of(both: SideBySide) -> Verdict:
    """Who is ahead; a run that failed is behind one that did not."""
    if both.only_failure is None and not both.decisive.significant:
        return Verdict.WITHIN_NOISE
    if len(both.changed) > 1:
        return Verdict.CONFOUNDED
    return Verdict.B_BETTER if (both.only_failure or both.behind) == "a" else Verdict.A_BETTER


def who_is_ahead(both: SideBySide, verdict: Verdict) -> Finding:
    """The verdict in words, with both losses at the last point and the best of each run as evidence."""
    last = both.last
    counted = all(run.progress.batches for run in both.runs)
    at = _amount(last.at, both.runs[0], counted=counted)
    text = _in_words(both, verdict, _where(both, at, counted=counted))
    text += _before(both, counted=counted) + _at_equal_time(both)
    losses = (
        derived(f"loss_{name}", value, f"of {name} after {at}", unit=_unit(both))
        for name, value in (("a", last.a), ("b", last.b))
    )
    best = (curve.fact(int(np.argmin(curve.value))) for curve in loss_curves(*both.runs))
    certain = abs(both.decisive.delta) > CERTAIN * both.decisive.standard_error
    return Finding(
        id="comparison",
        severity=Severity.INFO,
        confidence=Confidence.CERTAIN if certain else Confidence.LIKELY,
        message=text + _best_of_each(both),
        evidence=(*losses, *best, *_of_the_mean(both)),
    )


def _where(both: SideBySide, at: str, *, counted: bool) -> str:
    """At which point, or over which evaluations, the verdict's difference was taken."""
    if both.late is None:
        return f"after {at}"
    since = _amount(both.late.since, both.runs[0], counted=counted).removesuffix(" tokens")
    return f"in the mean of {both.late.values} {both.late.what} from {since} to {at}"


def _of_the_mean(both: SideBySide) -> tuple[Fact, ...]:
    """The mean difference that the verdict rests on, and its error; empty where the last point is that."""
    if both.late is None:
        return ()
    point, formula = both.late.point, f"over {both.late.values} {both.late.what} that both have"
    return (
        derived("mean_difference", point.delta, f"b less a, the mean {formula}", unit=_unit(both)),
        derived("standard_error", point.standard_error, f"of the mean {formula}", unit=_unit(both)),
    )


def _unit(both: SideBySide) -> str:
    return "bits/byte" if in_bits_a_byte(*both.runs) else "nats"


def _in_words(both: SideBySide, verdict: Verdict, where: str) -> str:
    """The first sentence of the finding."""
    point, ahead, changed = both.decisive, both.ahead, both.changed
    gap = f"{abs(point.delta):.4f} ± {point.standard_error:.4f} {_unit(both)} {where}"
    if verdict is Verdict.WITHIN_NOISE and same_curve(*both.runs):
        return "Both curves are the same to the last digit: one log twice, or a run repeated to the bit."
    if verdict is Verdict.WITHIN_NOISE:
        lead = (
            f"{ahead} is ahead by {gap}" if f"{abs(point.delta):.4f}" != "0.0000" else f"they differ by {gap}"
        )
        return f"Within the noise: {lead}; another seed could turn it around."
    if not point.significant:
        return f"Before one of them broke they were within the noise of each other: {gap}."
    if ahead == both.only_failure:
        return f"Before {ahead} broke it was ahead by {gap}; a run that broke counts as behind."
    if verdict is Verdict.CONFOUNDED:
        things = f"{len(changed)} things were changed ({', '.join(changed)})"
        text = f"{ahead} is ahead by {gap}, and {things}: no single one of them may be credited."
        return text + not_the_cause(*both.runs)
    return f"{ahead} is ahead of {both.behind} by {gap}; {_credit(both)}."


def _credit(both: SideBySide) -> str:
    """What the difference may be credited to, as far as the settings are known."""
    named = zip("ab", both.runs, strict=True)
    unknown = [name for name, run in named if run.settings.get("learning_rate") is None]
    if both.changed:
        thing = both.changed[0]
        fields = fields_of(thing, *both.runs)
        told = f" ({', '.join(fields)})" if fields and thing.replace(" ", "_") not in fields else ""
        as_told = f", as far as the records of {' and '.join(unknown)} tell" if unknown else ""
        return f"only {thing} was changed{told}{as_told}"
    if unknown:
        return f"what was changed is not known, as the settings of {' and '.join(unknown)} are not"
    idle = ", ".join(idle_changes(*both.runs))
    if idle:
        return f"{idle} cannot move the loss so far, so something that is not in the records was changed"
    return "nothing that is known was changed, so something that is not in the records was"


def _before(both: SideBySide, *, counted: bool) -> str:
    """Until when the other run was ahead, where the curves cross beyond the noise."""
    decisive = both.decisive
    if not decisive.significant:
        return ""
    # Of a dozen points one is beyond two standard errors by chance.
    sure = [p for p in both.by_tokens if abs(p.delta) > CERTAIN * p.standard_error]
    other = [p for p in sure if p.delta * decisive.delta < 0]
    if not other:
        return ""
    until = _amount(other[-1].at, both.runs[0], counted=counted)
    return f" The curves cross: after {until} {both.behind} was still ahead."


def _at_equal_time(both: SideBySide) -> str:
    """Who is ahead after equal seconds, where that is not what equal tokens say; at one pace it is."""
    if not both.by_seconds or same_pace(*both.runs):
        return ""
    timed = both.by_seconds[-1]
    ahead, by = "b" if timed.delta < 0 else "a", f"{abs(timed.delta):.4f} {_unit(both)}"
    if not both.decisive.significant:
        return f" At equal time {ahead} is ahead by {by}." if timed.significant else ""
    if ahead == both.ahead:
        return ""
    if timed.significant:
        return f" At equal time it is the other way round: {by}."
    return " At equal time they are within the noise of each other."


def _best_of_each(both: SideBySide) -> str:
    """Where each run was at its best, if that is not where they are compared; the lowest of many lines of
    training is chance.
    """
    if loss_curves(*both.runs)[0].name == "train_loss":
        return ""
    parts, elsewhere = [], False
    for name, run, curve in zip("ab", both.runs, loss_curves(*both.runs), strict=True):
        best = int(np.argmin(curve.value))
        step = int(curve.step[best])
        tokens = run.progress.tokens_at(step)
        amount = float(step) if tokens is None else tokens
        elsewhere = elsewhere or abs(amount / both.last.at - 1) > SAME_AMOUNT
        at = _amount(amount, run, counted=tokens is not None)
        parts.append(f"{name} {curve.value[best]:.4f} after {at}")
    return f" Best of each: {', '.join(parts)}." if elsewhere else ""


def _amount(amount: float, run: Reading, *, counted: bool) -> str:
    return f"{units.count(amount)} tokens" if counted else run.at(round(amount))

"""A rule: the contract's id, and a function from a reading to what it says.

The function's docstring is what `--explain ID` prints: the reasoning, its sources, and the false alarms that
it must avoid. A rule fires on evidence only, never on its absence.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from gptwright.diagnose.reading import Reading
from gptwright.facts import Fact
from gptwright.findings import Action, Cause, Confidence, Finding, Severity, Unknown

Verdict = Finding | Unknown
Judge = Callable[[Reading], Iterator[Verdict]]


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule; `judge` yields its findings and open questions."""

    id: str
    judge: Judge

    @property
    def explanation(self) -> str:
        """The reasoning behind the rule, with its sources."""
        return inspect.cleandoc(self.judge.__doc__ or "")


def fires(judge: Judge, reading: Reading) -> bool:
    """Whether a rule finds something in a run; an open question is no finding."""
    return any(isinstance(verdict, Finding) for verdict in judge(reading))


def finding(
    rule_id: str,
    severity: Severity,
    confidence: Confidence,
    message: str,
    evidence: Iterable[Fact | None],
    *,
    causes: Iterable[Cause] = (),
    actions: Iterable[Action] = (),
) -> Finding:
    """A finding whose evidence is what is there of the facts given."""
    return Finding(
        id=rule_id,
        severity=severity,
        confidence=confidence,
        message=message,
        evidence=tuple(fact for fact in evidence if fact is not None),
        causes=tuple(causes),
        actions=tuple(actions),
    )

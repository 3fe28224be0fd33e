"""What a rule says about a run or a plan: a finding with its evidence, or a question that stays open.

The ids are fixed by the outside contract; scripts select by them. A finding that its evidence cannot carry
is not made; what would decide goes into an `Unknown`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from gptwright.facts import Fact, Value


class Severity(StrEnum):
    """How much a finding matters, the worst first."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"
    GOOD = "good"

    @property
    def rank(self) -> int:
        """0 for the worst."""
        return list(Severity).index(self)


class Confidence(StrEnum):
    """How sure it is."""

    CERTAIN = "certain"  # follows by arithmetic
    LIKELY = "likely"
    POSSIBLE = "possible"


@dataclass(frozen=True, slots=True)
class Cause:
    """A possible reason behind a finding."""

    text: str
    confidence: Confidence


@dataclass(frozen=True, slots=True)
class Action:
    """What to do: a sentence, and the settings that `train` takes for it."""

    text: str
    settings: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that the numbers say.

    Attributes:
        id: the contract's name of the kind.
        severity: how much it matters.
        confidence: how sure it is.
        message: one or two sentences with the numbers in them.
        evidence: the facts that carry it, each with its source.
        causes: possible reasons, the likeliest first.
        actions: what to do.
    """

    id: str
    severity: Severity
    confidence: Confidence
    message: str
    evidence: tuple[Fact, ...]
    causes: tuple[Cause, ...] = ()
    actions: tuple[Action, ...] = ()

    def document(self) -> dict[str, Any]:
        """The finding as the contract's JSON has it."""
        return {
            "id": self.id,
            "severity": str(self.severity),
            "confidence": str(self.confidence),
            "message": self.message,
            "evidence": [
                {"name": fact.name, "value": fact.value, "unit": fact.unit, "source": fact.source}
                for fact in self.evidence
            ],
            "causes": [{"text": c.text, "confidence": str(c.confidence)} for c in self.causes],
            "actions": [{"text": a.text, "set": dict(a.settings)} for a in self.actions],
        }


@dataclass(frozen=True, slots=True)
class Unknown:
    """A question that the evidence leaves open, and what would answer it."""

    question: str
    missing: str

    def document(self) -> dict[str, str]:
        """The question as the contract's JSON has it."""
        return {"question": self.question, "missing": self.missing}

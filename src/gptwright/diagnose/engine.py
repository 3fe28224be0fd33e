"""Runs every rule over a reading: findings by severity, and the questions that stay open."""

from collections.abc import Sequence
from dataclasses import dataclass

from gptwright.diagnose.reading import Reading
from gptwright.diagnose.rule import Rule
from gptwright.diagnose.rules import (
    agreement,
    claims,
    evaluations,
    failures,
    learning,
    outlook,
    schedule,
    size,
    throughput,
)
from gptwright.errors import ConfigError
from gptwright.findings import Finding, Unknown

RULES: tuple[Rule, ...] = (
    *failures.RULES,
    *learning.RULES,
    *agreement.RULES,
    *claims.RULES,
    *evaluations.RULES,
    *outlook.RULES,
    *size.RULES,
    *schedule.RULES,
    *throughput.RULES,
)


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What the rules say about a run.

    Attributes:
        reading: the run.
        findings: the worst first; within a severity in the order of the rules.
        unknown: questions that the evidence leaves open, each once.
    """

    reading: Reading
    findings: tuple[Finding, ...]
    unknown: tuple[Unknown, ...]


def diagnose(reading: Reading) -> Diagnosis:
    """All findings of all rules, sorted by severity."""
    findings: list[Finding] = []
    unknown: dict[str, Unknown] = {}
    for rule in RULES:
        for verdict in rule.judge(reading):
            if isinstance(verdict, Finding):
                findings.append(verdict)
            else:
                unknown.setdefault(verdict.question, verdict)
    findings.sort(key=lambda finding: finding.severity.rank)
    return Diagnosis(reading, tuple(findings), tuple(unknown.values()))


def explain(rule_id: str) -> str:
    """The reasoning behind a finding, with its sources.

    Raises:
        ConfigError: no rule has this id.
    """
    explanations = [rule.explanation for rule in RULES if rule.id == rule_id]
    if not explanations:
        raise ConfigError(f"no finding is called {rule_id!r}", fix=f"they are {', '.join(rule_ids())}")
    return "\n\n".join(explanations)


def rule_ids() -> Sequence[str]:
    """All ids, sorted."""
    return sorted({rule.id for rule in RULES})

"""Rules over a reading: findings by severity, and the questions that stay open."""

from collections.abc import Iterable
from dataclasses import dataclass

from gptwright.diagnose.reading import Reading
from gptwright.diagnose.rule import Rule
from gptwright.findings import Finding, Unknown


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


def judged(reading: Reading, rules: Iterable[Rule]) -> Diagnosis:
    """What these rules say of a reading."""
    findings: list[Finding] = []
    unknown: dict[str, Unknown] = {}
    for rule in rules:
        for verdict in rule.judge(reading):
            if isinstance(verdict, Finding):
                findings.append(verdict)
            else:
                unknown.setdefault(verdict.question, verdict)
    findings.sort(key=lambda finding: finding.severity.rank)
    return Diagnosis(reading, tuple(findings), tuple(unknown.values()))

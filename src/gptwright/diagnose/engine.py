"""All rules: what they say of a run, and the reasoning behind each."""

import difflib
from collections.abc import Sequence

from gptwright.diagnose.judging import Diagnosis, judged
from gptwright.diagnose.reading import Reading
from gptwright.diagnose.rule import Rule
from gptwright.diagnose.rules import (
    agreement,
    completeness,
    crashes,
    evaluations,
    failures,
    guarded,
    implausible,
    learning,
    outlook,
    overfitting,
    precision,
    references,
    resumes,
    schedule,
    size,
    size_labels,
    stale_comments,
    step_times,
    throughput,
    uniform,
)
from gptwright.errors import ConfigError

RULES: tuple[Rule, ...] = (
    *failures.RULES,
    *crashes.RULES,
    *guarded.RULES,
    *uniform.RULES,
    *learning.RULES,
    *resumes.RULES,
    *agreement.RULES,
    *completeness.RULES,
    *size_labels.RULES,
    *stale_comments.RULES,
    *overfitting.RULES,
    *evaluations.RULES,
    *references.RULES,
    *outlook.RULES,
    *implausible.RULES,
    *size.RULES,
    *schedule.RULES,
    *precision.RULES,
    *throughput.RULES,
    *step_times.RULES,
)


def diagnose(reading: Reading) -> Diagnosis:
    """All findings of all rules, sorted by severity."""
    return judged(reading, RULES)


def explain(rule_id: str) -> str:
    """The reasoning behind a finding, with its sources.

    Raises:
        ConfigError: no rule has this id.
    """
    explanations = [rule.explanation for rule in RULES if rule.id == rule_id]
    if not explanations:
        near = difflib.get_close_matches(rule_id, rule_ids(), n=3)
        raise ConfigError(
            f"no finding is called {rule_id!r}",
            why=f"they are {', '.join(rule_ids())}",
            fix=f"--explain {' or '.join(near)}" if near else "--explain with one of them",
        )
    return "\n\n".join(explanations)


def rule_ids() -> Sequence[str]:
    """All ids, sorted."""
    return sorted({rule.id for rule in RULES})

"""The verdict on a run in a sentence, for the terminal and for pages, which need no terminal's library."""

from collections.abc import Sequence

from gptwright.findings import Finding, Severity


def verdict_of(findings: Sequence[Finding]) -> str:
    """The whole diagnosis in one sentence."""
    count = {severity: [f for f in findings if f.severity is severity] for severity in Severity}
    if count[Severity.ERROR]:
        return f"This run is broken: {_names(count[Severity.ERROR])}."
    if count[Severity.WARNING]:
        return f"This run needs a look: {_names(count[Severity.WARNING])}."
    if count[Severity.INFO]:
        return f"Nothing is wrong with this run. Worth knowing: {_names(count[Severity.INFO])}."
    return "Nothing is wrong with this run that its record could show."


def _names(findings: Sequence[Finding]) -> str:
    return ", ".join(dict.fromkeys(finding.id for finding in findings))

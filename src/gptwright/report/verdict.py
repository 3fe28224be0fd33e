"""The verdict on a run in a sentence, for the terminal and for pages, which need no terminal's library."""

from collections.abc import Sequence

from gptwright.findings import Finding, Severity


def verdict_of(findings: Sequence[Finding], *, ran: bool = True) -> str:
    """The whole diagnosis in one sentence.

    Args:
        findings: what was found.
        ran: whether there is a log; a config alone is no run yet.
    """
    count = {severity: [f for f in findings if f.severity is severity] for severity in Severity}
    what = "run" if ran else "config"
    if count[Severity.ERROR]:
        return f"This {what} is broken: {_names(count[Severity.ERROR])}."
    if count[Severity.WARNING]:
        return f"This {what} needs a look: {_names(count[Severity.WARNING])}."
    if count[Severity.INFO]:
        return f"Nothing is wrong with this {what}. Worth knowing: {_names(count[Severity.INFO])}."
    return f"Nothing is wrong with this {what} that its {'record' if ran else 'settings'} could show."


def _names(findings: Sequence[Finding]) -> str:
    return ", ".join(dict.fromkeys(finding.id for finding in findings))

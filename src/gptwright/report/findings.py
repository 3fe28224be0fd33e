"""Findings in the terminal: what a tired person reads in half a minute.

Findings by severity, each with its message, the facts that carry it, likely
causes and what to do; then what could not be known. Nothing here computes.
"""

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.text import Text

from gptwright.findings import Finding, Severity, Unknown

STYLES = {
    Severity.ERROR: ("bold red", "error"),
    Severity.WARNING: ("yellow", "warning"),
    Severity.INFO: ("cyan", "info"),
    Severity.GOOD: ("green", "good"),
}


def show_findings(console: Console, findings: Sequence[Finding], unknown: Sequence[Unknown]) -> None:
    """Prints findings and open questions."""
    for finding in findings:
        style, label = STYLES[finding.severity]
        console.print(f"[{style}]{label}[/] [bold]{escape(finding.id)}[/] [dim]{finding.confidence}[/]")
        _indented(console, escape(finding.message))
        for cause in finding.causes:
            _indented(console, f"[dim]{cause.confidence} cause:[/] {escape(cause.text)}")
        for action in finding.actions:
            settings = " ".join(f"--{name}={value}" for name, value in action.settings.items())
            _indented(
                console,
                f"[green]do:[/] {escape(action.text)}{f' [bold]{escape(settings)}[/]' if settings else ''}",
            )
        _evidence(console, finding)
    if unknown:
        console.print("[bold]not known[/]")
        for item in unknown:
            _indented(console, f"{escape(item.question)} [dim]It needs {escape(item.missing)}.[/]")


def _evidence(console: Console, finding: Finding) -> None:
    """One line of facts with their places; a text as long as a log line is shortened."""
    parts = [
        (
            f"{fact.name} {_short(fact.text)} ({fact.source})"
            if fact.source != "derived"
            else f"{fact.name} {fact.text}"
        )
        for fact in finding.evidence
    ]
    _indented(console, Text("from: " + " · ".join(parts), style="dim"))


def _short(text: str) -> str:
    return text if len(text) <= 48 else text[:47] + "…"


def _indented(console: Console, text: str | Text) -> None:
    console.print(Padding(text, (0, 0, 0, 2)))

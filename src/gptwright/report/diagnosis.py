"""A diagnosis in the terminal: the verdict, the run in numbers, the findings, and what could not be known."""

from rich.console import Console
from rich.markup import escape

from gptwright import units
from gptwright.diagnose.forecast import forecast_run
from gptwright.diagnose.judging import Diagnosis
from gptwright.diagnose.reading import Reading
from gptwright.report.findings import show_findings
from gptwright.report.run_facts import run_facts
from gptwright.report.terminal import facts_table
from gptwright.report.verdict import verdict_of


def show_diagnosis(console: Console, diagnosis: Diagnosis) -> None:
    """Prints a diagnosis."""
    reading = diagnosis.reading
    console.print(f"[bold]{escape(verdict_of(diagnosis.findings, ran=reading.log is not None))}[/]\n")
    console.print(facts_table(run_facts(reading), title=_title(reading)))
    console.print()
    show_findings(console, diagnosis.findings, diagnosis.unknown)
    _show_forecast(console, reading)


def _show_forecast(console: Console, reading: Reading) -> None:
    """Where the run is heading and what would pay, where its own curve says so."""
    forecast = forecast_run(reading)
    if forecast is None or (forecast.planned_end is None and not forecast.options):
        return
    console.print("[bold]where it is heading[/]")
    planned, end = reading.progress.planned_steps, forecast.planned_end
    if end is not None and planned is not None:
        console.print(
            f"  {forecast.curve.name} at the planned step {planned.number:,.0f}: about {end.likely:.3f},"
            f" {end.low:.3f} to {end.high:.3f} in nine of ten such runs"
        )
    for option in forecast.options:
        hours = f", {units.duration(option.hours * 3600)}" if option.hours is not None else ""
        console.print(f"  {option.text}: {units.span(*option.gain)} nats less{hours}")


def _title(reading: Reading) -> str:
    log = reading.log
    if log is None:
        return reading.evidence.path
    skipped = f", {units.counted(log.lines_skipped, 'damaged line')} skipped" if log.lines_skipped else ""
    return f"{log.format.name} log, {log.lines_read:,} lines{skipped}"

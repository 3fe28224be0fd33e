"""Diagnoses and comparisons as the JSON documents of the outside contract.

SI base units; a figure that cannot be known is null. NaN and infinity have no place in JSON and cannot occur:
readings hold finite numbers only.
"""

from collections.abc import Sequence
from typing import Any

from gptwright.diagnose.compare import Comparison, Point
from gptwright.diagnose.forecast import RunForecast, forecast_run
from gptwright.diagnose.judging import Diagnosis
from gptwright.diagnose.reading import Reading
from gptwright.diagnose.series import eval_train_loss, every_val_loss, train_loss, val_loss
from gptwright.facts import Fact, Value
from gptwright.record.evidence import CARRIED, LogEvidence


def diagnosis_document(diagnosis: Diagnosis) -> dict[str, Any]:
    """`gptwright.diagnosis/1`."""
    return {
        "schema": "gptwright.diagnosis/1",
        "run": run_summary(diagnosis.reading),
        "findings": [finding.document() for finding in diagnosis.findings],
        "unknown": [unknown.document() for unknown in diagnosis.unknown],
        "forecast": forecast_document(forecast_run(diagnosis.reading)),
    }


def forecast_document(forecast: RunForecast | None) -> dict[str, Any] | None:
    """Where a run is heading: 90 % interval at the planned end, and what would pay, in nats and hours."""
    if forecast is None:
        return None
    end = forecast.planned_end
    return {
        "loss": forecast.curve.name,
        "planned_end": {"low": end.low, "likely": end.likely, "high": end.high} if end is not None else None,
        "gain_from_half_more_steps": forecast.gain_from_half_more,
        "options": [
            {
                "text": option.text,
                "gain_low": option.gain[0],
                "gain_high": option.gain[1],
                "hours": option.hours,
            }
            for option in forecast.options
        ],
    }


def run_summary(reading: Reading) -> dict[str, Any]:
    """The numbers of a run."""
    log, speed, progress = reading.log, reading.speed, reading.progress
    val, every, trained = val_loss(reading), every_val_loss(reading), eval_train_loss(reading)
    if not len(trained):
        trained = train_loss(reading)
    return {
        "format": log.format.name if log else None,
        "lines_read": log.lines_read if log else 0,
        "lines_skipped": log.lines_skipped if log else 0,
        "first_step": _value(progress.first_step),
        "last_step": _value(progress.last_step),
        "parameters": _value(reading.sizes.parameters),
        "tokens_per_step": _value(speed.tokens_per_step),
        "tokens_seen": _value(progress.tokens_seen),
        "tokens_per_parameter": _value(progress.tokens_per_parameter),
        "epochs": _value(progress.epochs),
        "step_seconds": _value(speed.step_seconds),
        "tokens_per_second": _value(speed.tokens_per_second),
        "achieved_tflops": _tera(speed.achieved_flops),
        "peak_tflops": _tera(reading.machine.peak),
        "mfu": _value(reading.mfu),
        "last_train_loss": float(trained.value[-1]) if len(trained) else None,
        "last_val_loss": float(val.value[-1]) if len(val) else None,
        "best_val_loss": float(every.value[every.best]) if every.best is not None else None,
        "best_val_step": int(every.step[every.best])
        if every.best is not None and reading.steps_are_known and not _carried(log)
        else None,
    }


def comparison_document(comparison: Comparison) -> dict[str, Any]:
    """`gptwright.comparison/1`."""
    return {
        "schema": "gptwright.comparison/1",
        "differences": [{"field": d.field, "a": d.a, "b": d.b} for d in comparison.differences],
        "comparable": comparison.comparable,
        "reasons": list(comparison.reasons),
        "counts": comparison.counts,
        "at_equal_tokens": _points("tokens", comparison.at_equal_tokens),
        "at_equal_seconds": _points("seconds", comparison.at_equal_seconds),
        "at_equal_flops": _points("flops", comparison.at_equal_flops),
        "verdict": str(comparison.verdict),
        "findings": [finding.document() for finding in comparison.findings],
    }


def _value(fact: Fact | None) -> Value:
    return fact.value if fact is not None else None


def _carried(log: LogEvidence | None) -> bool:
    """Whether a log only repeats its evaluations, so that their steps are not known."""
    return log is not None and bool(log.hazards.get(CARRIED))


def _tera(fact: Fact | None) -> float | None:
    return fact.number / 1e12 if fact is not None else None


def _points(name: str, points: Sequence[Point]) -> list[dict[str, float]]:
    return [
        {name: p.at, "a": p.a, "b": p.b, "delta": p.delta, "standard_error": p.standard_error} for p in points
    ]

"""A plan's promise as a run keeps it in run.json, to be held against what comes of it."""

from typing import Any

from gptwright.plan.plan import Plan


def promise_document(plan: Plan) -> dict[str, Any]:
    """The promise as a run keeps it: low, likely, high in SI units; None where nothing is promised."""
    return {
        "tokens_per_second": _band(
            (plan.speed.low, plan.speed.likely, plan.speed.high) if plan.speed else None
        ),
        "seconds": _band(plan.seconds),
        "peak_memory_bytes": plan.memory.total if plan.steps else None,
        "val_loss": _band((plan.loss.low, plan.loss.likely, plan.loss.high) if plan.loss else None),
    }


def _band(values: tuple[float, float, float] | None) -> dict[str, float] | None:
    return dict(zip(("low", "likely", "high"), values, strict=True)) if values is not None else None

"""A plan as the JSON document of the outside contract: SI base units; what cannot be known is null."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from gptwright.findings import Finding, Unknown
from gptwright.plan.evaluation import evaluations
from gptwright.plan.plan import Plan


def plan_document(plan: Plan, findings: Sequence[Finding], unknown: Sequence[Unknown]) -> dict[str, Any]:
    """`gptwright.plan/1`."""
    count, config = plan.shape.count_parameters(), plan.config
    evaluated = evaluations(plan)
    return {
        "schema": "gptwright.plan/1",
        "parameters": {
            "total": count.total,
            "embedding": count.embedding,
            "non_embedding": count.non_embedding,
            "matmul": count.matmul,
            "nanogpt": count.nanogpt,
        },
        "flops_per_token": {
            "palm": plan.shape.flops_per_token(),
            "causal": plan.shape.causal_flops_per_token(),
        },
        "batch": {
            "micro_batch": config.batch_size,
            "gradient_accumulation_steps": config.gradient_accumulation_steps,
            "world_size": plan.device.count,
            "tokens_per_step": plan.tokens_per_step,
            "largest_micro_batch": plan.largest_micro_batch,
        },
        "memory": _memory(plan),
        "throughput": _throughput(plan),
        "schedule": {
            "steps": plan.steps,
            "tokens": plan.tokens,
            "tokens_per_parameter": plan.tokens_per_parameter,
            "epochs": plan.epochs,
            "seconds": _band(plan.seconds if plan.steps else None),
            "evaluations": evaluated.count,
            "evaluation_seconds": _band(evaluated.seconds),
        },
        "loss": {
            **_band((plan.loss.low, plan.loss.likely, plan.loss.high) if plan.loss is not None else None),
            "basis": f"{plan.loss.curve}: {plan.loss.basis}" if plan.loss is not None else None,
        },
        "energy_joules": plan.joules if plan.steps else None,
        "config": {name: value for name, value in asdict(config).items() if value is not None},
        "findings": [finding.document() for finding in findings],
        "unknown": [item.document() for item in unknown],
    }


def _memory(plan: Plan) -> dict[str, Any]:
    """Of a training step; unknown where none is made."""
    memory = plan.memory
    parts = {
        "weights": memory.weights,
        "gradients": memory.gradients,
        "optimizer": memory.optimizer,
        "weight_copies": memory.weight_copies,
        "activations": memory.activations,
        "logits": memory.logits,
        "overhead": memory.overhead,
    }
    return {
        "device_bytes": plan.device.memory.value if plan.device.memory is not None else None,
        "peak_bytes": memory.total if plan.steps else None,
        "fits": plan.fits,
        "parts": parts if plan.steps else dict.fromkeys(parts),
    }


def _throughput(plan: Plan) -> dict[str, Any]:
    peak, speed = plan.device.peak, plan.speed if plan.steps else None
    return {
        "device": plan.device.name.text,
        "device_basis": plan.device.name.reason,
        "dtype": plan.device.dtype,
        "kernels": plan.device.kernels,
        "peak_tflops": peak.number / 1e12 if peak is not None else None,
        "peak_basis": peak.reason if peak is not None else None,
        "tokens_per_second": _band((speed.low, speed.likely, speed.high) if speed is not None else None),
        "mfu": _band(plan.mfu if speed is not None else None),
        "basis": speed.basis if speed is not None else None,
    }


def _band(values: tuple[float, float, float] | None) -> dict[str, float | None]:
    low, likely, high = values if values is not None else (None, None, None)
    return {"low": low, "likely": likely, "high": high}

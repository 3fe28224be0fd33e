"""gptwright's own run folder: metrics.jsonl, config.toml, run.json, and log.txt as a view of the metrics.

The lines of log.txt come from the package itself, because it is a view that the package writes. The loss is
the step's, `seconds` a mean since the line before without evaluations, MFU against a measured peak.
"""

import json
import math
from typing import Any

import numpy as np

from gptwright.record.log_text import log_text
from tests.simulator.run import Handover
from tests.simulator.series import Behind, Columns, columns
from tests.simulator.truth import Truth
from tests.simulator.writers.lines import Written

START = 1_795_830_000.0


def write(truth: Truth, handover: Handover, rng: np.random.Generator) -> Written:
    """The files of the folder."""
    records: list[dict[str, Any]] = [_start(truth)]
    processes = columns(truth, rng, behind=Behind.STEP, evaluate_last=True, means=True)
    for index, process in enumerate(processes):
        if index:
            records.append({"v": 1, "kind": "resume", "time": START, "step": process.first})
        records += _records(truth, process)
    records.append(_end(truth))
    metrics = "".join(f"{json.dumps(record)}\n" for record in records)
    return Written(
        files={
            "metrics.jsonl": metrics,
            "run.json": json.dumps(_run_facts(truth), indent=2) + "\n",
            "log.txt": log_text(records),
        }
    )


def measured_peak(truth: Truth) -> float:
    """What the probe measured: the share of the tabled peak that large products reach."""
    return truth.device.peak_flops * truth.device.reachable


def _start(truth: Truth) -> dict[str, Any]:
    shape = truth.shape
    return {
        "v": 1,
        "kind": "start",
        "time": START,
        "step": 0,
        "tokens_per_step": truth.tokens_per_step,
        "vocab_size": shape.vocab_size,
        "parameters_nanogpt": shape.parameters,
        "parameters_total": shape.total,
        "decayed_tensors": 4 * shape.n_layer + 2,
        "decayed_parameters": shape.decayed,
        "not_decayed_tensors": 2 * shape.n_layer + 1,
        "not_decayed_parameters": shape.vectors,
        "device": truth.device.logged,
        "dtype": truth.dtype,
        "peak_flops": measured_peak(truth),
        "max_iters": truth.planned_steps(0),
    }


def _records(truth: Truth, process: Columns) -> list[dict[str, Any]]:
    peak, flops, tokens = measured_peak(truth), truth.shape.flops_per_token, truth.tokens_per_step
    pace, error = truth.step_seconds, truth.eval_error
    records: list[tuple[int, int, dict[str, Any]]] = []
    for step, train, val in zip(process.eval_step, process.eval_train, process.eval_val, strict=True):
        windows = truth.eval_iters * truth.micro_batch
        record = {
            "v": 1,
            "kind": "eval",
            "time": START + step * pace,
            "step": step,
            "train_loss": _number(train),
            "train_loss_standard_error": error,
            "train_windows": windows,
            "val_loss": _number(val),
            "val_loss_standard_error": error,
            "val_windows": windows,
            "seconds": truth.eval_seconds,
        }
        records.append((step, 0, record))
    for step, loss, mean, rate, norm, seconds in zip(
        process.step,
        process.loss,
        process.loss_mean,
        process.rate,
        process.grad_norm,
        process.seconds,
        strict=True,
    ):
        if step >= truth.max_iters:
            continue
        speed = tokens / seconds
        record = {
            "v": 1,
            "kind": "train",
            "time": START + step * pace,
            "step": step,
            "loss": _number(loss),
            "loss_mean": _number(mean),
            "lr": rate,
            "grad_norm": _number(norm),
            "seconds": seconds,
            "tokens_per_second": speed,
            "mfu": speed * flops / peak,
            "tokens": (step + 1) * tokens,
        }
        records.append((step, 1, record))
        if not math.isfinite(loss):
            break
    records.sort(key=lambda entry: entry[:2])
    failed = next((step for step, _, entry in records if entry.get("loss") in ("nan", "inf")), None)
    return [entry for step, _, entry in records if failed is None or step <= failed]


def _number(value: float) -> float | str:
    """JSON has no NaN: its name stands for it."""
    return value if math.isfinite(value) else str(value)


def _end(truth: Truth) -> dict[str, Any]:
    state = "finished" if truth.last_step >= truth.max_iters else "stopped"
    time = START + truth.last_step * truth.step_seconds
    end: dict[str, Any] = {"v": 1, "kind": "end", "time": time, "step": truth.last_step, "state": state}
    if truth.trouble.bad_from is not None:
        bad = -(-truth.trouble.bad_from // truth.log_interval) * truth.log_interval
        reason = f"loss is {truth.trouble.bad_word}"
        end |= {"step": min(bad, truth.last_step), "state": "failed", "reason": reason}
    return end


def _run_facts(truth: Truth) -> dict[str, Any]:
    return {
        "schema": "gptwright.run/1",
        "gptwright": "0.1.0",
        "commit": None,
        "machine": {
            "system": "Linux-6.8.0-x86_64-with-glibc2.39",
            "python": "3.12.7",
            "torch": "2.8.0",
            "numpy": "2.2.1",
            "device": truth.device.logged,
            "device_memory_bytes": int(truth.device.memory_gib * 2**30),
            "threads": 8,
        },
        "dataset": {
            "name": truth.dataset,
            "folder": f"data/{truth.dataset}",
            "fingerprint": "2dd5ae344d7d8cd2174889afa715ec7d",
            "tokens": {"train": truth.train_tokens, "val": truth.val_tokens},
        },
        "facts": [],
        "warnings": [],
    }

"""Hugging Face's Trainer: dicts between carriage returns of a progress bar, or trainer_state.json.

The loss is the mean since the line before; newer releases print floats as strings of four significant digits
(`variant = "strings"`). `epoch` is steps over steps per epoch.
"""

import json

import numpy as np

from tests.simulator.run import Handover
from tests.simulator.series import Behind, Columns, columns
from tests.simulator.truth import Truth
from tests.simulator.writers.lines import Line, Written, header

PADDING = " " * 60


def write(truth: Truth, handover: Handover, rng: np.random.Generator) -> Written:
    """What a terminal's capture holds."""
    lines: list[Line] = header(f"  0%|          | 0/{truth.planned_steps(0)} [00:00<?, ?it/s]")
    losses: list[float] = []
    pace = truth.step_seconds
    for index, process in enumerate(columns(truth, rng, behind=Behind.INTERVAL)):
        planned = truth.planned_steps(index)
        losses += process.loss[1:]
        for entry in _history(truth, process):
            step = int(entry.pop("step"))
            bar = "" if "eval_loss" in entry else _bar(step, planned, pace)
            lines.append((step, f"{bar}{PADDING}{_dict_text(truth, entry)}"))
    if truth.last_step >= truth.max_iters:
        lines.append((truth.last_step, _dict_text(truth, _summary(truth, losses))))
    return Written(lines=lines)


def write_state(truth: Truth, handover: Handover, rng: np.random.Generator) -> Written:
    """trainer_state.json, as the last checkpoint holds it."""
    process = columns(truth, rng, behind=Behind.INTERVAL)[0]
    history: list[dict[str, float]] = list(_history(truth, process))
    if truth.last_step >= truth.max_iters:
        history.append({**_summary(truth, process.loss[1:]), "step": truth.last_step, "total_flos": 6.3e15})
    evals = [(entry["eval_loss"], int(entry["step"])) for entry in history if "eval_loss" in entry]
    best = min(evals, default=(None, None))
    state: dict[str, object] = {
        "best_global_step": best[1],
        "best_metric": best[0],
        "best_model_checkpoint": None,
        "epoch": round(truth.epochs, 4),
        "eval_steps": truth.eval_interval,
        "global_step": truth.last_step,
        "is_hyper_param_search": False,
        "is_local_process_zero": True,
        "is_world_process_zero": True,
        "log_history": history,
        "logging_steps": truth.log_interval,
        "max_steps": truth.max_iters,
        "num_input_tokens_seen": 0,
        "num_train_epochs": max(1, round(truth.max_iters * truth.tokens_per_step / truth.train_tokens)),
        "save_steps": truth.eval_interval,
        "stateful_callbacks": {},
        "total_flos": 6.3e15,
        "train_batch_size": truth.micro_batch,
        "trial_name": None,
        "trial_params": None,
    }
    return Written(files={"trainer_state.json": json.dumps(state, indent=2) + "\n"})


def _history(truth: Truth, process: Columns) -> list[dict[str, float]]:
    evals = dict(zip(process.eval_step, process.eval_val, strict=True))
    entries: list[dict[str, float]] = []
    per_epoch = truth.train_tokens / truth.tokens_per_step
    samples, runtime = truth.eval_iters * truth.micro_batch, truth.eval_seconds / 2
    for step, loss, norm, rate in zip(
        process.step, process.loss, process.grad_norm, process.rate, strict=True
    ):
        if step > process.first:
            entries.append(
                {
                    "loss": round(loss, 4),
                    "grad_norm": norm,
                    "learning_rate": rate,
                    "epoch": _four_digits(step / per_epoch),
                    "step": step,
                }
            )
        for due in [at for at in evals if step <= at < step + truth.log_interval and at > process.first]:
            entries.append(
                {
                    "eval_loss": round(evals.pop(due), 4),
                    "eval_runtime": round(runtime, 4),
                    "eval_samples_per_second": round(samples / runtime, 3),
                    "eval_steps_per_second": round(truth.eval_iters / runtime, 3),
                    "epoch": _four_digits(due / per_epoch),
                    "step": due,
                }
            )
    return entries


def _four_digits(value: float) -> float:
    return float(f"{value:.4g}")


def _summary(truth: Truth, losses: list[float]) -> dict[str, float]:
    seconds = truth.last_step * truth.step_seconds
    samples = truth.last_step * truth.micro_batch * truth.accumulation
    return {
        "train_runtime": round(seconds, 4),
        "train_samples_per_second": round(samples / seconds, 3),
        "train_steps_per_second": round(truth.last_step / seconds, 3),
        "train_loss": round(sum(losses) / max(1, len(losses)), 4),
        "epoch": _four_digits(truth.epochs),
    }


def _dict_text(truth: Truth, entry: dict[str, float]) -> str:
    if truth.variant == "strings":
        return str({name: f"{value:.4g}" for name, value in entry.items()})
    return str(entry)


def _bar(step: int, planned: int, pace: float) -> str:
    share = step / planned
    blocks = "█" * round(10 * share)
    clock = f"{_clock(step * pace)}<{_clock((planned - step) * pace)}"
    speed = f"{1 / pace:5.2f}it/s" if pace <= 1 else f"{pace:5.2f}s/it"
    return f"\r{share:4.0%}|{blocks:<10s}| {step}/{planned} [{clock}, {speed}]\r"


def _clock(seconds: float) -> str:
    whole = int(seconds)
    hours = f"{whole // 3600}:" if whole >= 3600 else ""
    return f"{hours}{whole // 60 % 60:02d}:{whole % 60:02d}"

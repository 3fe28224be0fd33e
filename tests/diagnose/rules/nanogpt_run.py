"""A nanoGPT run as a folder: config, facts, and a log of a given curve, in nanoGPT's line shapes."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gptwright.diagnose.engine import diagnose
from gptwright.diagnose.judging import Diagnosis
from gptwright.diagnose.reading import read_run
from gptwright.findings import Finding
from gptwright.record.open_run import open_run

Curve = Callable[[float], float]

WEB: dict[str, Any] = {
    "eval_interval": 250,
    "log_interval": 10,
    "eval_iters": 200,
    "dataset": "openwebtext",
    "gradient_accumulation_steps": 40,
    "batch_size": 12,
    "block_size": 1024,
    "n_layer": 12,
    "n_head": 12,
    "n_embd": 768,
    "dropout": 0.0,
    "learning_rate": 6e-4,
    "max_iters": 5000,
    "lr_decay_iters": 5000,
    "min_lr": 6e-5,
    "warmup_iters": 100,
}
CHARACTERS = WEB | {
    "dataset": "shakespeare_char",
    "gradient_accumulation_steps": 1,
    "batch_size": 64,
    "block_size": 256,
    "n_layer": 6,
    "n_head": 6,
    "n_embd": 384,
    "dropout": 0.2,
    "learning_rate": 1e-3,
    "min_lr": 1e-4,
}


def power_law(floor: float, start: float, exponent: float) -> Curve:
    """A loss that falls from `start` towards `floor`."""
    return lambda step: floor + (start - floor) * ((step + 30) / 30) ** -exponent


def web_loss(step: float) -> float:
    """Much like GPT-2 small over web text."""
    return power_law(3.05, 10.9, 0.62)(step)


def write_run(
    folder: Path,
    settings: Mapping[str, Any],
    facts: Mapping[str, Any],
    curve: Curve,
    *,
    val: Curve | None = None,
    first: int = 0,
    last: int | None = None,
    vocab_size: int = 50304,
    tflops: float = 30.0,
    noise: float = 0.05,
) -> Path:
    """Writes the folder; `val` is the validation curve, 0.02 above training if not given."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    layers, width, context = (settings[name] for name in ("n_layer", "n_embd", "block_size"))
    parameters = vocab_size * width + 12 * layers * width**2 + (2 * layers + 1) * width
    per_step = settings["batch_size"] * settings["gradient_accumulation_steps"] * context
    flops = (6 * parameters + 12 * layers * width * context) * per_step
    step_ms = flops / tflops / 1e9
    lines = [f"tokens per iteration will be: {per_step:,}", f"number of parameters: {parameters / 1e6:.2f}M"]
    if first:
        lines = []
    for step in range(first, (last or settings["max_iters"]) + 1, settings["log_interval"]):
        evaluated = step % settings["eval_interval"] == 0
        if evaluated:
            above = val(step) if val is not None else curve(step) + 0.02
            scatter = rng.normal(0, 0.002, 2)
            lines.append(
                f"step {step}: train loss {curve(step) + scatter[0]:.4f}, val loss {above + scatter[1]:.4f}"
            )
        ms = step_ms * rng.normal(1, 0.01) + (20 * step_ms if evaluated else 0)
        mfu = flops / (ms / 1000) / 312e12 * 100 if step > first else -100.0
        lines.append(
            f"iter {step}: loss {curve(step) + rng.normal(0, noise):.4f}, time {ms:.2f}ms, mfu {mfu:.2f}%"
        )
    (folder / "log.txt").write_text("\n".join(lines) + "\n")
    (folder / "config.py").write_text("".join(f"{name} = {value!r}\n" for name, value in settings.items()))
    known = {"vocab_size": vocab_size} | dict(facts)
    (folder / "facts.toml").write_text("".join(f"{name} = {json.dumps(v)}\n" for name, v in known.items()))
    return folder


def diagnosed(folder: Path) -> Diagnosis:
    """What is said of a folder."""
    return diagnose(read_run(open_run(str(folder))))


def found(folder: Path) -> dict[str, Finding]:
    """The findings by their ids."""
    return {finding.id: finding for finding in diagnosed(folder).findings}

"""Situations that people really asked about, claim by claim: config and log in, verdicts out.

The configs are the runs'; the logs are rebuilt from the figures that were published of them, line shapes as
nanoGPT prints them. Each situation has a file of tests, `test_situation_….py`.
"""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

Document = dict[str, Any]
Cli = Callable[..., Any]

NARROW: dict[str, Any] = {
    "dataset": "fineweb",
    "gradient_accumulation_steps": 32,
    "batch_size": 16,
    "block_size": 1024,
    "n_layer": 12,
    "n_head": 12,
    "n_embd": 384,
    "dropout": 0.1,
    "learning_rate": 1e-3,
    "max_iters": 20000,
    "warmup_iters": 500,
    "lr_decay_iters": 20000,
    "min_lr": 1e-4,
    "eval_interval": 500,
    "eval_iters": 200,
    "compile": True,
    "bias": False,
}
WIDE: dict[str, Any] = NARROW | {
    "gradient_accumulation_steps": 64,
    "batch_size": 8,
    "n_embd": 768,
    "dropout": 0.0,
    "learning_rate": 3e-4,
    "min_lr": 3e-5,
}
FACTS = {"device": "RTX 4070", "dataset": "fineweb", "vocab_size": 50304, "val_tokens": 5600}


def write_config(path: Path, settings: dict[str, Any], comment: str = "") -> None:
    lines = [f"{name} = {value!r}" for name, value in settings.items()]
    path.write_text("\n".join([comment, *lines]) + "\n", encoding="utf-8")


def write_facts(path: Path, facts: dict[str, Any]) -> None:
    path.write_text("".join(f"{k} = {json.dumps(v)}\n" for k, v in facts.items()), encoding="utf-8")


class NanoGptLog:
    """Writes nanoGPT's lines: its running average of the MFU, evaluation time in the step after one."""

    def __init__(self, *, flops_per_step: float, step_ms: float, eval_ms: float) -> None:
        self.lines: list[str] = []
        self.flops_per_step, self.step_ms, self.eval_ms = flops_per_step, step_ms, eval_ms
        self.mfu: float | None = None

    def iteration(self, step: int, loss: float, *, evaluated: bool = False) -> None:
        ms = self.step_ms + (self.eval_ms if evaluated else 0.0)
        now = self.flops_per_step / (ms / 1000) / 312e12
        if step >= 5:
            self.mfu = now if self.mfu is None else 0.9 * self.mfu + 0.1 * now
        shown = -100.0 if self.mfu is None else self.mfu * 100
        self.lines.append(f"iter {step}: loss {loss:.4f}, time {ms:.2f}ms, mfu {shown:.2f}%")

    def evaluation(self, step: int, train: float, val: float) -> None:
        self.lines.append(f"step {step}: train loss {train:.4f}, val loss {val:.4f}")

    def write(self, path: Path) -> None:
        path.write_text("\n".join(self.lines) + "\n", encoding="utf-8")


def web_run(folder: Path, *, narrow: bool, last: int, note: str = "") -> Path:
    """The 40M or the 124M run on an RTX 4070, up to a step, with its published evaluations."""
    folder.mkdir(parents=True)
    settings = NARROW if narrow else WIDE
    comment = "# about 125M parameters, perfect for 12 GB" if narrow else ""
    write_config(folder / "config.py", settings, comment)
    write_facts(folder / "facts.toml", FACTS | ({"note": note} if note else {}))
    parameters = 40_560_000 if narrow else 123_587_328
    flops = 6 * parameters + 12 * 12 * settings["n_embd"] * 1024
    log = NanoGptLog(
        flops_per_step=flops * 524_288,
        step_ms=3909.0 if narrow else 9340.0,
        eval_ms=15_200.0 if narrow else 36_000.0,
    )
    if narrow:
        points = {
            0: 10.87,
            500: 5.44,
            1000: 4.449,
            1500: 4.189,
            2500: 3.987,
            5000: 3.79,
            9500: 3.69,
            14500: 3.6415,
        }
    else:
        points = {
            0: 10.87,
            500: 5.47,
            1000: 4.36,
            1500: 4.08,
            2500: 3.81,
            5000: 3.56,
            10000: 3.40,
            11000: 3.38,
        }
    known_val = (
        {500: 5.5328, 1000: 4.4593, 14500: 3.5696} if narrow else {500: 5.5194, 10000: 3.3581, 11000: 3.3366}
    )
    steps = sorted(points)
    for step in range(0, last + 1, 100):
        place = max(s for s in steps if s <= step)
        after = min((s for s in steps if s >= step), default=place)
        share = (
            0.0
            if after == place
            else (math.log1p(step) - math.log1p(place)) / (math.log1p(after) - math.log1p(place))
        )
        train = points[place] + share * (points[after] - points[place])
        # A fixed, alternating scatter of the size that lines of one micro-batch have.
        scatter = 0.09 * math.sin(12.9898 * step) if step else 0.0
        if step % 500 == 0:
            gap = 0.0 if step < 1500 else -0.06 + 0.015 * math.sin(step)
            log.evaluation(step, train, known_val.get(step, train + gap))
        log.iteration(step, train + scatter + (0.09 if narrow and step else 0.0), evaluated=step % 500 == 0)
    log.write(folder / "log.txt")
    return folder


def diagnosis(gptwright: Cli, folder: Path, *options: str) -> Document:
    answer = gptwright("diagnose", str(folder), "--json", *options)
    assert answer.status == 0, answer.err
    document: Document = json.loads(answer.out)
    return document


def plan(gptwright: Cli, config: Path, *options: str) -> Document:
    answer = gptwright("plan", str(config), "--json", *options)
    assert answer.status == 0, answer.err
    document: Document = json.loads(answer.out)
    return document


def one(document: Document, name: str) -> Document:
    found = [finding for finding in document["findings"] if finding["id"] == name]
    assert found, f"{name} is not among {[f['id'] for f in document['findings']]}"
    first: Document = found[0]
    return first


def text_of(finding: Document) -> str:
    return json.dumps(finding, ensure_ascii=False).replace(",", "")

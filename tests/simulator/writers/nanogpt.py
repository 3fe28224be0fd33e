"""nanoGPT's train.py: an iteration's time ends after an evaluation that stands before it, and enters the MFU.

The loss of a line is the last micro-batch's. MFU is against 312 TFLOP/s, a running average (0.9) over logged
iterations from the fifth local one on, -100 % before.
"""

from collections.abc import Iterable

import numpy as np

from tests.simulator.config_text import config_text
from tests.simulator.devices import A100_PEAK
from tests.simulator.run import Handover
from tests.simulator.series import Behind, Columns, columns
from tests.simulator.truth import Truth
from tests.simulator.writers.lines import Line, Written, header, merged

SETTLED_AFTER = 5
KEPT = 0.9


def write(truth: Truth, handover: Handover, rng: np.random.Generator) -> Written:
    """The log of one or more processes."""
    lines: list[Line] = []
    processes = columns(truth, rng, behind=Behind.MICRO_BATCH, time_includes_evaluation=True)
    for index, process in enumerate(processes):
        part = truth.process(index)
        head = _header(part, handover) if index == 0 else _resume_header(part)
        lines += [(process.first - 1 if index else -1, text) for _, text in head]
        evals = evaluation_lines(process, f"out-{truth.dataset.replace('_', '-')}")
        lines += merged(_iteration_lines(part, process), evals)
    return Written(lines=lines)


def evaluation_lines(process: Columns, out: str) -> list[Line]:
    """`step` lines, each followed by the checkpoint that a better validation loss brings."""
    lines: list[Line] = []
    best = float("inf")
    for step, train, val in zip(process.eval_step, process.eval_train, process.eval_val, strict=True):
        lines.append((step, f"step {step}: train loss {train:.4f}, val loss {val:.4f}"))
        if val < best:
            best = val
            if step > process.first:
                lines.append((step, f"saving checkpoint to {out}"))
    return lines


def running_mfu(truth: Truth, process: Columns) -> Iterable[float]:
    """What nanoGPT and llama2.c print behind the time, as a fraction."""
    micro_batches = truth.accumulation / truth.device_count
    flops = truth.shape.flops_per_token * truth.micro_batch * micro_batches * truth.shape.block_size
    running = -1.0
    for step, seconds in zip(process.step, process.seconds, strict=True):
        if step - process.first >= SETTLED_AFTER:
            mfu = flops / seconds / A100_PEAK
            running = mfu if running == -1.0 else KEPT * running + (1 - KEPT) * mfu
        yield running


def optimizer_lines(truth: Truth) -> list[str]:
    """What `configure_optimizers` prints."""
    shape = truth.shape
    vectors = shape.n_layer * (8 if shape.bias else 2) + (2 if shape.bias else 1)
    matrices = 7 * shape.n_layer + 1 if shape.family == "llama2c" else 4 * shape.n_layer + 2
    fused = truth.device.kind != "cpu"
    return [
        f"num decayed parameter tensors: {matrices}, with {shape.decayed:,} parameters",
        f"num non-decayed parameter tensors: {vectors}, with {shape.vectors:,} parameters",
        f"using fused AdamW: {fused}",
    ]


def _iteration_lines(truth: Truth, process: Columns) -> list[Line]:
    if truth.variant == "without-mfu":
        return [
            (step, f"iter {step}: loss {loss:.4f}, time {seconds * 1000:.2f}ms")
            for step, loss, seconds in zip(process.step, process.loss, process.seconds, strict=True)
        ]
    return [
        (step, f"iter {step}: loss {loss:.4f}, time {seconds * 1000:.2f}ms, mfu {mfu * 100:.2f}%")
        for step, loss, seconds, mfu in zip(
            process.step, process.loss, process.seconds, running_mfu(truth, process), strict=True
        )
    ]


def _header(truth: Truth, handover: Handover) -> list[Line]:
    lines = []
    if truth.variant == "echo" and handover.config:
        lines += [
            f"Overriding config with config/train_{truth.dataset}.py:",
            *config_text(handover).splitlines(),
        ]
    lines.append(f"tokens per iteration will be: {truth.tokens_per_step:,}")
    gpt2 = truth.shape.vocab_size == 50304
    if not gpt2:
        lines.append(f"found vocab_size = {truth.shape.vocab_size} (inside data/{truth.dataset}/meta.pkl)")
    lines.append("Initializing a new model from scratch")
    if gpt2:
        lines.append("defaulting to vocab_size of GPT-2 to 50304 (50257 rounded up for efficiency)")
    return header(*lines, *_model_lines(truth))


def _resume_header(truth: Truth) -> list[Line]:
    return header(
        f"tokens per iteration will be: {truth.tokens_per_step:,}",
        f"Resuming training from out-{truth.dataset.replace('_', '-')}",
        *_model_lines(truth),
    )


def _model_lines(truth: Truth) -> list[str]:
    lines = [f"number of parameters: {truth.parameters / 1e6:.2f}M", *optimizer_lines(truth)]
    return [*lines, "compiling the model... (takes a ~minute)"] if truth.compiled else lines

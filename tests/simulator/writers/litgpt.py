"""litgpt's pretrain.py: `iter` counts micro-batches, `step` updates; the time is one micro-batch's.

The loss is the mean over the step's micro-batches. `val:` repeats the last evaluation, which comes after the
line of its step. The closing Tok/sec divides by a clock reading and means nothing.
"""

import math
from datetime import timedelta

import numpy as np

from tests.simulator.run import Handover
from tests.simulator.series import Behind, Columns, columns
from tests.simulator.truth import Truth
from tests.simulator.writers.lines import Line, Written, header


def write(truth: Truth, handover: Handover, rng: np.random.Generator) -> Written:
    """Standard output."""
    process = columns(truth, rng, behind=Behind.STEP)[0]
    lines = [*_header(truth), *_lines(truth, process)]
    if truth.last_step >= truth.max_iters and process.eval_val:
        lines += _footer(truth, process.eval_val[-1])
    return Written(lines=lines)


def _lines(truth: Truth, process: Columns) -> list[Line]:
    per_step = truth.accumulation // truth.device_count
    evals = dict(zip(process.eval_step, process.eval_val, strict=True))
    lines: list[Line] = []
    shown = "n/a"
    pace, per_epoch = truth.step_seconds, truth.train_tokens / truth.tokens_per_step
    for step, loss, seconds in zip(process.step, process.loss, process.seconds, strict=True):
        if step:
            left = timedelta(seconds=int((truth.max_iters - step) * pace))
            lines.append(
                (
                    step,
                    f"Epoch {1 + int(step / per_epoch)}"
                    f" | iter {step * per_step} step {step} | loss train: {loss:.3f}, val: {shown}"
                    f" | iter time: {seconds / per_step * 1000:.2f} ms (step) remaining time: {left}",
                )
            )
        for due in [at for at in evals if step <= at < step + truth.log_interval and at > 0]:
            val = evals.pop(due)
            shown = f"{val:.3f}"
            lines.append((due, "Validating ..."))
            lines.append(
                (
                    due,
                    f"iter {due * per_step}: val loss {val:.4f}, val time: {truth.eval_seconds * 500:.2f} ms",
                )
            )
    return lines


def _header(truth: Truth) -> list[Line]:
    flops = truth.micro_batch * truth.shape.block_size * truth.shape.flops_per_token * truth.device_count
    return header(
        "Time to instantiate model: 0.04 seconds.",
        f"Total parameters: {truth.shape.total:,}",
        "Verifying settings ...",
        f"Measured TFLOPs: {flops / 1e12:.2f}",
    )


def _footer(truth: Truth, val: float) -> list[Line]:
    seconds = truth.last_step * truth.step_seconds
    lines = [
        "Validating ...",
        f"Final evaluation | val loss: {val:.3f} | val ppl: {math.exp(min(val, 700)):.3f}",
        "-" * 40,
        "| Performance",
        f"| - Total tokens  : {truth.tokens_seen:,}",
        f"| - Training Time : {seconds:.2f} s",
        f"| - Tok/sec       : {truth.tokens_seen / 244_321.7:.2f} tok/s",
        "-" * 40,
    ]
    return [(truth.last_step, line) for line in lines]

"""build-nanogpt's train_gpt2.py: a step's clock starts before its evaluation; the loss is the whole step's.

`variant = "file"` is its log/log.txt, which has three words a line and no times. The last step is
max_steps - 1, and it is always evaluated.
"""

import numpy as np

from tests.simulator.run import Handover
from tests.simulator.series import Behind, Columns, columns
from tests.simulator.truth import Truth
from tests.simulator.writers.lines import Line, Written, header, merged
from tests.simulator.writers.nanogpt import optimizer_lines


def write(truth: Truth, handover: Handover, rng: np.random.Generator) -> Written:
    """Standard output, or the log file."""
    process = columns(
        truth, rng, behind=Behind.STEP, time_includes_evaluation=True, evaluate_last=True, print_last=True
    )[0]
    if truth.variant == "file":
        train = [(s, f"{s} train {loss:.6f}") for s, loss in zip(process.step, process.loss, strict=True)]
        evals = [
            (s, f"{s} val {loss:.4f}") for s, loss in zip(process.eval_step, process.eval_val, strict=True)
        ]
        return Written(lines=merged(train, evals))
    evals = [
        (s, f"validation loss: {loss:.4f}")
        for s, loss in zip(process.eval_step, process.eval_val, strict=True)
    ]
    return Written(lines=[*_header(truth), *merged(_lines(truth, process), evals)])


def _lines(truth: Truth, process: Columns) -> list[Line]:
    tokens = truth.tokens_per_step
    return [
        (
            step,
            f"step {step:5d} | loss: {loss:.6f} | lr {rate:.4e} | norm: {norm:.4f}"
            f" | dt: {seconds * 1000:.2f}ms | tok/sec: {tokens / seconds:.2f}",
        )
        for step, loss, rate, norm, seconds in zip(
            process.step, process.loss, process.rate, process.grad_norm, process.seconds, strict=True
        )
    ]


def _header(truth: Truth) -> list[Line]:
    return header(
        "using device: cuda",
        f"total desired batch size: {truth.tokens_per_step}",
        f"=> calculated gradient accumulation steps: {truth.accumulation // truth.device_count}",
        f"found {max(1, round(truth.train_tokens / 1e8))} shards for split train",
        "found 1 shards for split val",
        *optimizer_lines(truth),
    )

"""llama2.c's train.py: nanoGPT's loop with the learning rate on the line and no `iter`."""

import numpy as np

from tests.simulator.run import Handover
from tests.simulator.series import Behind, Columns, columns
from tests.simulator.truth import Truth
from tests.simulator.writers.lines import Line, Written, header, merged
from tests.simulator.writers.nanogpt import evaluation_lines, optimizer_lines, running_mfu

OUT = "out-story"


def write(truth: Truth, handover: Handover, rng: np.random.Generator) -> Written:
    """The log of one or more processes."""
    lines: list[Line] = []
    processes = columns(truth, rng, behind=Behind.MICRO_BATCH, time_includes_evaluation=True)
    for index, process in enumerate(processes):
        part = truth.process(index)
        lines += [(process.first - 1 if index else -1, text) for _, text in _header(part, resumed=index > 0)]
        lines += merged(_lines(part, process), evaluation_lines(process, OUT))
    return Written(lines=lines)


def _lines(truth: Truth, process: Columns) -> list[Line]:
    return [
        (step, f"{step} | loss {loss:.4f} | lr {rate:e} | {seconds * 1000:.2f}ms | mfu {mfu * 100:.2f}%")
        for step, loss, rate, seconds, mfu in zip(
            process.step,
            process.loss,
            process.rate,
            process.seconds,
            running_mfu(truth, process),
            strict=True,
        )
    ]


def _header(truth: Truth, *, resumed: bool) -> list[Line]:
    per_process = truth.accumulation // truth.device_count
    return header(
        f"tokens per iteration will be: {truth.tokens_per_step:,}",
        f"breaks down as: {per_process} grad accum steps * {truth.device_count} processes"
        f" * {truth.micro_batch} batch size * {truth.shape.block_size} max seq len",
        f"Resuming training from {OUT}" if resumed else "Initializing a new model from scratch",
        *optimizer_lines(truth),
        *(["compiling the model... (takes a ~minute)"] if truth.compiled else []),
    )

"""modded-nanogpt's train_gpt.py, older (with train loss) and current (without).

The file begins with the whole source, whose format strings look like log lines, and an nvidia-smi table; the
numbers come after the last row of `=`. The clock stops during validation. Older versions start it anew after
ten steps and print `nan` until then. `variant = "seconds"` is track 3's shape.
"""

import numpy as np

from tests.simulator.run import Handover
from tests.simulator.series import Behind, Columns, columns
from tests.simulator.truth import Truth
from tests.simulator.writers.lines import Line, Written, header, merged

UNTIMED_STEPS = 10
RULE = "=" * 100
SOURCE = """import os, sys
with open(sys.argv[0]) as f:
    code = f.read() # read the code of this file ASAP, for logging
import torch
for step in range(train_steps + 1):
    print0(f"step:{step}/{train_steps} val_loss:{val_loss:.4f} train_time:{training_time_ms:.0f}ms")
    print0(f"step:{step+1}/{train_steps} train_time:{approx_training_time_ms:.0f}ms", console=True)"""


def write_older(truth: Truth, handover: Handover, rng: np.random.Generator) -> Written:
    """`step:1000/5100 train_loss:3.8123 train_time:178890ms step_avg:178.89ms`."""
    process = columns(truth, rng, behind=Behind.MICRO_BATCH, evaluate_last=True)[0]
    train, evals = [], []
    clock = _Clock(process, restarts=True)
    for step, loss in zip(process.step, process.loss, strict=True):
        train.append((step, f"step:{step}/{truth.max_iters} train_loss:{loss:.4f} {clock.at(step)}"))
    for step, loss in zip(process.eval_step, process.eval_val, strict=True):
        evals.append((step, f"step:{step}/{truth.max_iters} val_loss:{loss:.4f} {clock.at(step)}"))
    train = [line for line in train if line[0] > 0]
    return Written(lines=[*_header(truth), *merged(evals, train)])


def write_current(truth: Truth, handover: Handover, rng: np.random.Generator) -> Written:
    """`step:251/1490 train_time:14626ms step_avg:58.27ms`."""
    process = columns(truth, rng, behind=Behind.STEP, evaluate_last=True)[0]
    seconds = truth.variant == "seconds"
    clock = _Clock(process, restarts=False, seconds=seconds)
    digits = 5 if seconds else 4
    train = [(step, f"step:{step}/{truth.max_iters} {clock.at(step)}") for step in process.step if step > 0]
    evals = [
        (step, f"step:{step}/{truth.max_iters} val_loss:{loss:.{digits}f} {clock.at(step)}")
        for step, loss in zip(process.eval_step, process.eval_val, strict=True)
    ]
    return Written(lines=[*_header(truth), *merged(evals, train)])


class _Clock:
    """The training clock: the sum of the steps' times, with the printed average."""

    def __init__(self, process: Columns, *, restarts: bool, seconds: bool = False) -> None:
        # Kernels are compiled before the clock starts.
        own = [min(process.seconds[1:] or process.seconds), *process.seconds[1:]]
        steps = np.array(process.step, dtype=np.float64)
        spans = np.diff(steps, prepend=0.0)
        self.steps = steps
        self.elapsed = np.cumsum(spans * np.array(own))
        self.restarts = restarts
        self.seconds = seconds

    def at(self, step: int) -> str:
        """The clock's words at a step."""
        elapsed = float(np.interp(step, self.steps, self.elapsed))
        timed = step
        if self.restarts and step > UNTIMED_STEPS:
            elapsed -= float(np.interp(UNTIMED_STEPS, self.steps, self.elapsed))
            timed = step - UNTIMED_STEPS
        average = f"{1000 * elapsed / max(timed, 1):.2f}"
        if self.restarts and step <= UNTIMED_STEPS + 2:
            average = "nan"
        if self.seconds:
            return f"train_time:{elapsed:.3f}s step_avg:{average}ms"
        return f"train_time:{1000 * elapsed:.0f}ms step_avg:{average}ms"


def _header(truth: Truth) -> list[Line]:
    device = truth.device.logged
    memory = f"{truth.device.memory_gib * 1019:.0f}MiB"
    row = f"|   0  {device[:28]:<28s}  On  |   00000000:61:00.0 Off |                    0 |"
    return header(
        *SOURCE.splitlines(),
        RULE,
        "Running Python 3.12.7 (main, Oct 16 2024, 04:37:19) [Clang 18.1.8 ]",
        "Running PyTorch 2.6.0 compiled for CUDA 12.4",
        "+---------------------------------------------------------------------------------------+",
        "| NVIDIA-SMI 535.129.03             Driver Version: 535.129.03   CUDA Version: 12.4     |",
        "|=========================================+======================+======================|",
        row,
        f"| N/A   37C    P0             118W / 700W |   1551MiB / {memory} |      0%      Default |",
        "+---------------------------------------------------------------------------------------+",
        RULE,
    )

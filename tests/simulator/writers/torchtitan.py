"""torchtitan's metrics: colour codes between fields, tokens a second of one device, no evaluation.

MFU is against a table of data-centre cards; any other is taken for an A100, which the log says.
"""

import numpy as np

from tests.simulator.devices import A100_PEAK
from tests.simulator.run import Handover
from tests.simulator.series import Behind, Columns, columns
from tests.simulator.truth import Truth
from tests.simulator.writers.lines import Line, Written, header

RED, GREEN, ORANGE, TURQUOISE, BLUE, CYAN, MAGENTA, RESET = (
    f"\x1b[{code}m" for code in ("31", "32", "38;2;180;60;0", "38;2;54;234;195", "34", "36", "35", "39")
)


def write(truth: Truth, handover: Handover, rng: np.random.Generator) -> Written:
    """Standard output of rank 0."""
    process = columns(truth, rng, behind=Behind.STEP)[0]
    clock = _clock_texts(process)
    head = [f"{_prefix(clock[0])}{text}" for text in _header(truth)]
    return Written(lines=[*header(*head), *_lines(truth, process, clock)])


def _lines(truth: Truth, process: Columns, clock: list[str]) -> list[Line]:
    per_device = truth.tokens_per_step / truth.device_count
    peak, flops = truth.device.titan_peak, truth.shape.flops_per_token
    gib, share = 0.53 * truth.device.memory_gib, 53.0
    lines = []
    for step, loss, norm, seconds, text in zip(
        process.step, process.loss, process.grad_norm, process.seconds, clock, strict=True
    ):
        speed = per_device / seconds
        shown = step or 1
        lines.append(
            (
                shown,
                f"{_prefix(text)}{RED}step: {shown:2}  {GREEN}loss: {loss:8.5f}  {ORANGE}"
                f"grad_norm: {norm:7.4f}  {TURQUOISE}memory: {gib:5.2f}GiB({share:.2f}%)"
                f"  {BLUE}tps: {round(speed):,}  {CYAN}tflops: {speed * flops / 1e12:,.2f}"
                f"  {MAGENTA}mfu: {100 * speed * flops / peak:.2f}%{RESET}",
            )
        )
    return lines


def _clock_texts(process: Columns) -> list[str]:
    seconds = np.array(process.seconds) * np.diff(np.array(process.step), prepend=0).clip(min=1)
    at = (28_800_000 + 1000 * np.cumsum(seconds)).astype(int).tolist()
    return [
        f"{ms // 3_600_000 % 24:02d}:{ms // 60_000 % 60:02d}:{ms // 1000 % 60:02d},{ms % 1000:03d}"
        for ms in at
    ]


def _prefix(clock: str) -> str:
    return f"[titan] 2025-05-02 {clock} - root - INFO - "


def _header(truth: Truth) -> list[str]:
    device, tokens = truth.device, truth.tokens_per_step
    lines = [f"CUDA capacity: {device.logged} with {device.memory_gib * 0.99:.2f}GiB memory"]
    if device.titan_peak == A100_PEAK and device.peak_flops != A100_PEAK:
        lines.append(f"Peak flops undefined for: {device.logged}, fallback to A100")
    per_rank = truth.micro_batch * truth.shape.block_size
    return [
        *lines,
        f"{BLUE}Model llama3 base {RED}size: {truth.shape.total:,} total parameters{RESET}",
        f"Peak FLOPS used for computing MFU: {device.titan_peak:.3e}",
        f"Trainer is initialized with {per_rank} tokens per DP rank, {tokens} tokens per train step,"
        f" gradient accumulation steps {truth.accumulation // truth.device_count}, maximum context length"
        f" {truth.shape.block_size}, total steps {truth.max_iters} (warmup {truth.schedule.warmup})",
        "Training starts at step 1",
    ]

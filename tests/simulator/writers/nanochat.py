"""nanochat's base_train.py: a debiased running loss, an LR multiplier, MFU against a table of its own.

MFU has no percent sign and is 0.00 on a device that the table does not know. Evaluations are in bits a byte
and outside the clock; `total time` counts from step 11 on.
"""

import json
from itertools import accumulate

import numpy as np

from tests.simulator.run import Handover
from tests.simulator.series import Behind, Columns, columns
from tests.simulator.shapes import Shape
from tests.simulator.truth import Truth
from tests.simulator.writers.lines import Line, Written, header, merged

UNTIMED_STEPS = 10
LN2 = 0.6931471805599453


def write(truth: Truth, handover: Handover, rng: np.random.Generator) -> Written:
    """Standard output of one or more processes."""
    lines: list[Line] = []
    processes = columns(truth, rng, behind=Behind.SMOOTHED, evaluate_last=True)
    finished = truth.last_step >= truth.max_iters
    for index, process in enumerate(processes):
        begin = process.first - 1 if index else -1
        planned = truth.planned_steps(index)
        lines += [(begin, text) for _, text in _header(truth, process.first, planned)]
        # The loop ends before the update of the last step, so that only its evaluation is printed.
        train = [line for line in _lines(truth, process, planned) if line[0] < planned]
        lines += merged(train, _evaluations(truth, process, core=finished))
    return Written(lines=[*lines, *(_footer(truth, processes) if finished else [])])


def bits_per_byte(truth: Truth, loss: float) -> float:
    """A loss in nats a token as bits a byte."""
    return loss / LN2 / truth.bytes_per_token


def _evaluations(truth: Truth, process: Columns, *, core: bool) -> list[Line]:
    lines: list[Line] = []
    for step, val in zip(process.eval_step, process.eval_val, strict=True):
        lines.append((step, f"Step {step:05d} | Validation bpb: {bits_per_byte(truth, val):.6f}"))
    if core and lines:
        lines.append((process.eval_step[-1], f"Step {process.eval_step[-1]:05d} | CORE metric: 0.1124"))
    return lines


def _lines(truth: Truth, process: Columns, planned: int) -> list[Line]:
    tokens, peak = truth.tokens_per_step, truth.schedule.peak
    all_devices = truth.device.nanochat_peak * truth.device_count
    flops = truth.shape.flops_per_token * tokens
    elapsed = accumulate(truth.log_interval * seconds for seconds in process.seconds[1:])
    totals = [0.0, *elapsed]
    lines = []
    for step, loss, rate, seconds, total in zip(
        process.step, process.loss, process.rate, process.seconds, totals, strict=True
    ):
        done = step - UNTIMED_STEPS
        eta = f" | eta: {(planned - step) * total / done / 60:.1f}m" if done > 0 else ""
        lines.append(
            (
                step,
                f"step {step:05d}/{planned:05d} ({100 * step / planned:.2f}%) | loss: {loss:.6f}"
                f" | lrm: {rate / peak:.2f} | dt: {seconds * 1000:.2f}ms | tok/sec: {int(tokens / seconds):,}"
                f" | bf16_mfu: {100 * flops / seconds / all_devices:.2f} | epoch: 1 pq: {step // 997}"
                f" rg: {step // 13 % 78} | total time: {total / 60:.2f}m{eta}",
            )
        )
    return lines


def _header(truth: Truth, first: int, steps: int) -> list[Line]:
    shape, device = truth.shape, truth.device
    planned = steps * truth.tokens_per_step
    per_rank = truth.micro_batch * shape.block_size
    scaling = shape.matrices + shape.head
    return header(
        "Autodetected device type: cuda",
        f"GPU: {device.logged} | Peak FLOPS (BF16): {device.nanochat_peak:.2e}",
        f"Vocab size: {shape.vocab_size:,}",
        "Model config:",
        *_model_config(shape),
        *([f"Resuming optimization from step {first}"] if first else []),
        "Parameter counts:",
        *(f"{name:24s}: {count:,}" for name, count in _counts(shape).items()),
        f"Estimated FLOPs per token: {shape.flops_per_token:e}",
        f"Using user-provided number of iterations: {steps:,}",
        f"Total number of training tokens: {planned:,}",
        f"Tokens : Scaling params ratio: {planned / scaling:.2f}",
        f"Total training FLOPs estimate: {shape.flops_per_token * planned:e}",
        f"Tokens / micro-batch / rank: {truth.micro_batch} x {shape.block_size} = {per_rank:,}",
        f"Tokens / micro-batch: {per_rank * truth.device_count:,}",
        f"Total batch size {truth.tokens_per_step:,} => gradient accumulation steps:"
        f" {truth.accumulation // truth.device_count}",
    )


def _model_config(shape: Shape) -> list[str]:
    config = {
        "sequence_len": shape.block_size,
        "vocab_size": shape.vocab_size,
        "n_layer": shape.n_layer,
        "n_head": shape.n_head,
        "n_kv_head": shape.n_head,
        "n_embd": shape.n_embd,
        "window_pattern": "L",
    }
    return json.dumps(config, indent=2).splitlines()


def _counts(shape: Shape) -> dict[str, int]:
    return {
        "wte": shape.vocabulary,
        "value_embeds": shape.value_embeddings,
        "lm_head": shape.head,
        "transformer_matrices": shape.matrices,
        "scalars": shape.vectors,
        "total": shape.total,
    }


def _footer(truth: Truth, processes: list[Columns]) -> list[Line]:
    minutes = truth.last_step * truth.step_seconds / 60
    best = min((value for process in processes for value in process.eval_val), default=0.0)
    lines = ["Peak memory usage: 9436.49MiB", f"Total training time: {minutes:.2f}m"]
    lines.append(f"Minimum validation bpb: {bits_per_byte(truth, best):.6f}")
    return [(truth.last_step, line) for line in lines]

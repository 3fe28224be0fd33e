"""llm.c's train_gpt2.cu: a table of settings, one-based steps, MFU against a table of its own.

MFU counts positions and causal attention, and is -100.0 % on a device that the table does not know. z-scores
are `+nanz` until their window of 128 is full. `variant = "file"` is main.log, zero-based.
"""

import numpy as np

from tests.simulator.run import Handover
from tests.simulator.series import Behind, Columns, columns
from tests.simulator.truth import Truth
from tests.simulator.writers.lines import Line, Written, header, merged

WINDOW = 128
RATE_KEPT = 0.95
RULE = "+-----------------------+----------------------------------------------------+"


def write(truth: Truth, handover: Handover, rng: np.random.Generator) -> Written:
    """Standard output, or the log file."""
    lines: list[Line] = []
    processes = columns(truth, rng, behind=Behind.STEP, evaluate_last=True)
    for index, process in enumerate(processes):
        if truth.variant == "file":
            lines += _file_lines(process)
            continue
        planned = truth.planned_steps(index)
        head = _header(truth, planned, resume=index > 0)
        lines += [(process.first - 1 if index else -1, text) for _, text in head]
        evals = [
            (step, f"val loss {loss:f}")
            for step, loss in zip(process.eval_step, process.eval_val, strict=True)
        ]
        lines += merged(_lines(truth, process, planned, rng), evals)
    return Written(lines=lines)


def _lines(truth: Truth, process: Columns, planned: int, rng: np.random.Generator) -> list[Line]:
    tokens = truth.tokens_per_step
    peak = truth.device.llmc_peak
    flops = truth.shape.llmc_flops_per_token * tokens / truth.device_count
    scores = rng.standard_normal((2, len(process.step))).tolist()
    smoothed = truth.tokens_per_second
    lines = []
    for step, loss, norm, rate, seconds, z_loss, z_norm in zip(
        process.step, process.loss, process.grad_norm, process.rate, process.seconds, *scores, strict=True
    ):
        if step >= planned:
            continue
        if step > process.first:
            smoothed = RATE_KEPT * smoothed + (1 - RATE_KEPT) * tokens / seconds
        mfu = 100 * flops / seconds / peak if peak else -100.0
        full = step >= WINDOW
        z_texts = (f"{z_loss:+.2f}z", f"{z_norm:+.2f}z") if full else ("+nanz", "+nanz")
        lines.append(
            (
                step,
                f"step {step + 1:4d}/{planned} | loss {loss:7.6f} ({z_texts[0]})"
                f"| norm {norm:6.4f} ({z_texts[1]})| lr {rate:.2e} | {seconds * 1000:.2f} ms "
                f"| {mfu:.1f}% bf16 MFU | {smoothed:.0f} tok/s",
            )
        )
    return lines


def _file_lines(process: Columns) -> list[Line]:
    train = [
        (step, f"s:{step} trl:{loss:.4f} lr:{rate:.6f} norm:{norm:.2f}")
        for step, loss, rate, norm in zip(
            process.step, process.loss, process.rate, process.grad_norm, strict=True
        )
    ]
    evals = [
        (step, f"s:{step} tel:{loss:.4f}")
        for step, loss in zip(process.eval_step, process.eval_val, strict=True)
    ]
    return merged(train, evals)


def _header(truth: Truth, planned: int, *, resume: bool) -> list[Line]:
    shape, schedule = truth.shape, truth.schedule
    val_steps = max(1, truth.eval_iters)
    tables = (
        (
            ("Parameter", "Value"),
            ("train data pattern", "data/train_*.bin"),
            ("val data pattern", "data/val_*.bin"),
            ("output log dir", "log_run"),
            ("checkpoint_every", "5000"),
            ("resume", f"{int(resume)}"),
            ("micro batch size B", f"{truth.micro_batch}"),
            ("sequence length T", f"{shape.block_size}"),
            ("total batch size", f"{truth.tokens_per_step}"),
            ("LR scheduler", "cosine"),
            ("learning rate (LR)", f"{schedule.peak:e}"),
            ("warmup iterations", f"{schedule.warmup}"),
            ("final LR fraction", f"{schedule.floor / schedule.peak:e}"),
            ("weight decay", "1.000000e-01"),
            ("max_steps", f"{planned}"),
            ("val_loss_every", f"{truth.eval_interval}"),
            ("val_max_steps", f"{val_steps}"),
            ("overfit_single_batch", "0"),
            ("recompute", "1"),
        ),
        (
            ("device", truth.device.logged),
            ("peak TFlops", f"{(truth.device.llmc_peak or -1e12) / 1e12:.1f}"),
            ("precision", "BF16"),
        ),
        (
            ("weight init method", "intermediate checkpoint" if resume else f"d{shape.n_layer}"),
            ("max_sequence_length T", f"{shape.block_size}"),
            ("vocab_size V", "50257"),
            ("padded_vocab_size Vp", f"{shape.vocab_size}"),
            ("num_layers L", f"{shape.n_layer}"),
            ("num_heads NH", f"{shape.n_head}"),
            ("channels C", f"{shape.n_embd}"),
            ("num_parameters", f"{shape.total}"),
        ),
        (("train_num_batches", f"{planned}"), ("val_num_batches", f"{val_steps}")),
        (("num_processes", f"{truth.device_count}"), ("zero_stage", "0")),
    )
    lines = [RULE]
    for table in tables:
        lines += [*(f"| {name:<21s} | {value:<50s} |" for name, value in table), RULE]
    return header(
        *lines,
        f"num_parameters: {shape.total} => bytes: {2 * shape.total}",
        f"allocated {round(2 * shape.total / 2**20)} MiB for model parameters",
        f"batch_size B={truth.micro_batch} * seq_len T={shape.block_size}"
        f" * num_processes={truth.device_count} and total_batch_size={truth.tokens_per_step}",
        f"=> setting grad_accum_steps={truth.accumulation // truth.device_count}",
    )

"""torchtitan: components/metrics.py and the trainer of pytorch/torchtitan, older releases included.

The loss is the mean of the step's batch over all processes, the gradient norm is before clipping, and `tps`
is of one device: it is multiplied by the number of devices where the log gives that. The MFU is against the
peak that the start names, which is an A100's for a device that torchtitan does not know. The clock between
two lines leaves validation out.
"""

import math
import re

from gptwright.facts import Fact, derived
from gptwright.record.evidence import LogFormat, TrainLoss
from gptwright.record.readers.build import Builder
from gptwright.record.readers.headers import Header
from gptwright.record.readers.reader import Reader
from gptwright.record.readers.shapes import Shape
from gptwright.record.readers.tables import Rows, note_peak_memory

ONE_DEVICE = "tokens per second of one device"


def _finish(build: Builder, train: Rows, _evals: Rows) -> None:
    note_peak_memory(build, train)
    devices = _devices(build.header)
    if devices is not None:
        build.header["world_size"] = devices
        train["tokens_per_second"] = train["tokens_per_second"] * devices.number
    elif "tokens_per_second" in train:
        build.hazards[ONE_DEVICE] = len(train)


def _devices(header: dict[str, Fact]) -> Fact | None:
    """How many devices share a step, as far as the trainer's start says."""
    if "world_size" in header:
        return header["world_size"]
    step, accumulation = header.get("tokens_per_step"), header.get("gradient_accumulation_steps")
    rank = header.get("tokens_per_micro_batch")
    micro, batch = header.get("micro_batch"), header.get("global_batch")
    each = 1.0 if accumulation is None else accumulation.number
    if step and rank and rank.number * each > 0:
        count = step.number / (rank.number * each)
        formula = "tokens per train step over those of one data-parallel rank"
    elif micro and batch and micro.number * each > 0:
        count, formula = batch.number / (micro.number * each), "global batch over the local one"
    else:
        return None
    return (
        derived("world_size", int(count), formula) if count >= 1 and math.isclose(count, int(count)) else None
    )


TORCHTITAN = Reader(
    format=LogFormat(
        name="torchtitan",
        train_loss=TrainLoss.STEP,
        has_dropout=False,
        evaluates_train=False,
        time_includes_evaluation=False,
    ),
    begins=re.compile(r"step: +\d+(?: +loss| *$)"),
    shapes=(
        Shape(
            "train",
            r"step: +{step} +loss: +{loss} +grad_norm: +{grad_norm} +memory: +{memory_gib}GiB\({_}%\)"
            r" +tps: +{tokens_per_second} +tflops: +{_} +mfu: +{mfu_percent}%",
        ),
        Shape(
            "train",
            r"(?<!validate )step: *{step} +loss: *{loss} +(?:grad_norm: *{grad_norm} +)?"
            r"memory: *{memory_gib}GiB\({_}%\) +(?:tps|wps): *{tokens_per_second}(?: +tflops: *{_})?"
            r" +mfu: *(?:{mfu_percent}%|N/A)",
        ),
        Shape("eval", r"validate step: *{step} +loss: *{val_loss} +memory:"),
    ),
    headers=(
        Header(
            r"(?:CUDA|GPU|XPU|HIP|ROCM) capacity: {device} with {device_memory_bytes@GiB}GiB memory",
            weight=0.1,
        ),
        Header(r"size: {parameters_total} total parameters", weight=0.1),
        Header(r"Peak FLOPS used for computing MFU: {mfu_peak_flops}", weight=0.1),
        Header(r"{tokens_per_micro_batch} tokens per DP rank, {tokens_per_step} tokens per train step"),
        Header(r"local batch size {micro_batch}, global batch size {global_batch}"),
        Header(r"gradient accumulation steps {gradient_accumulation_steps},"),
        Header(r"(?:maximum context|sequence) length {block_size},"),
        Header(r"total steps {planned_steps} \(warmup {settings.warmup_iters}\)"),
        Header(r"Compiling each TransformerBlock with torch.compile", means={"compile": True}),
    ),
    finish=_finish,
)

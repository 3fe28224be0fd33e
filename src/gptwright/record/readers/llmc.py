"""llm.c: train_gpt2.cu, its main.log, the CPU program train_gpt2.c, and the reference train_gpt2.py.

The CUDA program and the reference count steps from 1 on standard output and evaluate before a step, so a
validation line belongs to the step printed above it; main.log and the CPU program count from 0. The loss is
the mean over the step's batch. `+nanz` is a z-score whose window is not yet full, no NaN of the loss. The MFU
is against the peak in the table at the start, -100 % where llm.c does not know the device.
"""

import re
from collections.abc import Callable

from gptwright.facts import Value, derived
from gptwright.record.evidence import EventKind, LogFormat, TrainLoss
from gptwright.record.readers.build import Builder
from gptwright.record.readers.fields import real_number, whole_number
from gptwright.record.readers.headers import Header, Said
from gptwright.record.readers.nanogpt import OPTIMIZER
from gptwright.record.readers.reader import Reader
from gptwright.record.readers.shapes import WHOLE, Shape
from gptwright.record.readers.steps import fill_from_next, fill_from_previous
from gptwright.record.readers.tables import Rows, note_unknown_mfu

Z_SCORE = r"\([+-]?(?:\d{1,9}\.\d{1,3}|nan|inf)z\)"
CPU = Shape("train", r"step {step}: train loss {loss} \(took {ms} ms\)")

FRESH = re.compile(r"d\d{1,4}|gpt[23]:.{1,20}")
OF_A_RESUME = "intermediate checkpoint"
# What the CPU program's first loss is beside that of fresh weights, over 50,257 tokens.
TRAINED_WEIGHTS = 8.0


def _start(text: str) -> str:
    """Whose weights a run begins with: `d12` draws fresh ones, a file holds trained ones."""
    if text == OF_A_RESUME:
        raise ValueError(text)
    return "scratch" if FRESH.fullmatch(text) else text


# The table's names → ours, and how to read them.
TABLE: dict[str, tuple[str, Callable[[str], Value]]] = {
    "micro batch size B": ("micro_batch", whole_number),
    "sequence length T": ("block_size", whole_number),
    "total batch size": ("tokens_per_step", whole_number),
    "max_steps": ("planned_steps", whole_number),
    "train_num_batches": ("planned_steps", whole_number),
    "device": ("device", str),
    "peak TFlops": ("mfu_peak_flops", lambda text: real_number(text) * 1e12),
    "vocab_size V": ("vocab_size", whole_number),
    "padded_vocab_size Vp": ("padded_vocab_size", whole_number),
    "num_layers L": ("n_layer", whole_number),
    "num_heads NH": ("n_head", whole_number),
    "channels C": ("n_embd", whole_number),
    "num_parameters": ("parameters_total", whole_number),
    "num_processes": ("world_size", whole_number),
    "learning rate (LR)": ("settings.learning_rate", real_number),
    "warmup iterations": ("settings.warmup_iters", whole_number),
    "weight decay": ("settings.weight_decay", real_number),
    "val_loss_every": ("settings.eval_interval", whole_number),
    "val_max_steps": ("settings.eval_iters", whole_number),
    "weight init method": ("settings.init_from", _start),
    "precision": (
        "settings.dtype",
        lambda text: {"BF16": "bfloat16", "FP16": "float16"}.get(text, "float32"),
    ),
}
# Whatever programs put in front of it.
TABLE_ROW = re.compile(r"^(?:.{0,200}\s)?\| ([A-Za-z][\w ().]{2,24}?) +\| (\S.{0,60}?) +\|$")


def _table(build: Builder) -> Callable[[str, int], bool]:
    """Reads the rows of the table that the CUDA program begins with."""

    def take(text: str, line: int) -> bool:
        row = TABLE_ROW.match(text)
        if row is None:
            return False
        name, text = row[1], row[2]
        if name == "resume" and text == "1":
            build.event(EventKind.RESUME, line, row[0].strip())
        elif name == "final LR fraction":
            _floor(build, text)
        elif name in TABLE:
            _keep(build, *TABLE[name], text, line)
        return True

    return take


def _keep(build: Builder, name: str, read: Callable[[str], Value], text: str, line: int) -> None:
    try:
        value = read(text)
    except ValueError:
        return
    # -1 stands for "not set" and for "peak not known".
    if not isinstance(value, int | float) or value > 0:
        build.header.pop(name, None)
        build.said(Said(name, value), line)


def _floor(build: Builder, text: str) -> None:
    """Keeps the lowest rate, which is printed as a share of the highest."""
    peak = build.settings.get("learning_rate")
    try:
        fraction = real_number(text)
    except ValueError:
        return
    if peak is not None:
        formula = f"final LR fraction {text} of {peak.text}"
        build.settings["min_lr"] = derived("min_lr", peak.number * fraction, formula)


def _finish(build: Builder, train: Rows, evals: Rows) -> None:
    note_unknown_mfu(build, train)
    if CPU in build.tables and len(train) and train["loss"][0] < TRAINED_WEIGHTS:
        text = "train_gpt2.c starts from the weights in gpt2_124M.bin"
        build.settings["init_from"] = derived("init_from", "gpt2", text)
    (fill_from_next if CPU in build.tables else fill_from_previous)(train, evals)


LLMC = Reader(
    format=LogFormat(
        name="llm.c",
        train_loss=TrainLoss.STEP,
        has_dropout=False,
        evaluates_train=False,
        time_includes_evaluation=False,
        gpt2_shaped=True,
    ),
    begins=re.compile(r"step +\d+(?:/\d+(?: \||:)|:|$)|s:\d+ t[er]l|^val loss"),
    shapes=(
        Shape(
            "train",
            r"step +{step}/{planned_steps} \| loss {loss} \({_}z\)\| norm {grad_norm} \({_}z\)"
            r"\| lr {learning_rate} \| {ms} ms \| {mfu_percent}% bf16 MFU \| {tokens_per_second} tok/s",
        ),
        Shape(
            "train",
            # C fills what is no number up to the width of one: `loss     nan (+nanz)`.
            rf"step +{{step}}/{{planned_steps}} \| loss +{{loss}} {Z_SCORE} ?\| norm +{{grad_norm}} {Z_SCORE}"
            r" ?\| lr {learning_rate} \| {ms} ms \| {mfu_percent}% (?:\w+ )?MFU \| {tokens_per_second} tok/s",
        ),
        Shape(
            "train",
            r"step +{step}/{planned_steps} \| train loss +{loss} \| norm +{grad_norm} \| lr {learning_rate}"
            r" \| \({ms} ms \| {tokens_per_second} tok/s\)",
        ),
        # its reference in PyTorch as modded-nanogpt first had it
        Shape(
            "train",
            r"step +{step}/{planned_steps} \| train loss +{loss} \| lr_scale \d\.\d\de[-+]\d\d"
            r" \| \({ms} ms \| {tokens_per_second} tok/s\)",
        ),
        CPU,
        # before July 2024, and before May
        Shape(
            "train",
            r"step +{step}/{planned_steps} \| train loss +{loss} \| norm +{grad_norm} \| lr {learning_rate}"
            r" \| {ms} ms \| {mfu_percent}% (?:A100 )?(?:bf16|fp16|fp32) MFU \| {tokens_per_second} tok/s",
        ),
        Shape(
            "train",
            r"step +{step}/{planned_steps}: train loss {loss}(?: \(acc [\d.]{1,12}\))?(?: norm {grad_norm})?"
            r"(?: lr {learning_rate})? \({ms} ms, {tokens_per_second} tok/s\)",
        ),
        Shape("train", r"s:{step} trl:{loss} lr:{learning_rate} norm:{grad_norm}" + WHOLE[2]),
        Shape("train", r"s:{step} trl:{loss}" + WHOLE[6]),
        Shape("eval", rf"s:{{step}} tel:{{val_loss}}(?:{WHOLE[6]}|{WHOLE[4]})"),
        # the reference prints all digits
        Shape(
            "eval",
            r"(?<!, )(?<!\w)(?<!best )(?<!lowest )"
            r"val loss {val_loss}(?:(?<=\d{4})|(?<=nan)|(?<=inf))(?![\w.,])",
            weight=0.5,
        ),
    ),
    headers=(
        Header(r"^num_parameters: {parameters_total}", weight=0.1),
        Header(r"=> setting grad_accum_steps={gradient_accumulation_steps}", weight=0.1),
        Header(r"allocating {allocation_bytes@MiB} MiB for {allocation_of}$"),
        Header(r"allocating {allocation_bytes@GiB} GiB for {allocation_of}$"),
        Header(r"device memory usage: \d+ MiB / {device_memory_bytes@MiB} MiB"),
        Header(r"^max_seq_len: {block_size}$"),
        Header(r"^vocab_size: {vocab_size}$"),
        Header(r"^padded_vocab_size: {padded_vocab_size}$"),
        Header(r"^num_layers: {n_layer}$"),
        Header(r"^num_heads: {n_head}$"),
        Header(r"^channels: {n_embd}$"),
        Header(r"total desired batch size: {tokens_per_step}"),
        Header(r"calculated gradient accumulation steps: {gradient_accumulation_steps}"),
        Header(r"peak memory consumption: {peak_memory_bytes@MiB} MiB"),
        *OPTIMIZER,
    ),
    special=_table,
    finish=_finish,
    signs=((re.compile(r"^\| num_parameters +\|"), 0.5),),
)

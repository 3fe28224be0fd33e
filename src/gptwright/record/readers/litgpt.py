"""litgpt: pretrain.py and finetune/ of Lightning-AI/litgpt, and its ancestors lit-gpt and lit-llama.

`iter` counts micro-batches, `step` optimizer steps, and both stand on a line, so one gives the other for the
validation lines, which have `iter` alone. The loss is the mean over the step's micro-batches of one process.
`iter time` is that of one micro-batch; times their number it is a step's, as the total at the end confirms.
`val:` on a training line repeats the last evaluation and is no new one; it counts only in a log without
evaluations, as the end of one, from the line on which it changes.

lit-llama prints no step at all: its steps are micro-batches here, and the evidence says so.
"""

import re
from dataclasses import replace

import numpy as np

from gptwright.facts import derived
from gptwright.record.arrays import Floats
from gptwright.record.evidence import LogFormat, TrainLoss
from gptwright.record.readers.build import Builder
from gptwright.record.readers.headers import Header
from gptwright.record.readers.reader import Reader
from gptwright.record.readers.shapes import Shape
from gptwright.record.readers.steps import step_printed_before
from gptwright.record.readers.tables import Rows, only_down, take_carried

FORMAT = LogFormat(
    name="litgpt",
    train_loss=TrainLoss.STEP,
    has_dropout=False,
    evaluates_train=False,
    time_includes_evaluation=False,
)
LIT_LLAMA = replace(FORMAT, name="lit-llama", train_loss=TrainLoss.MICRO_BATCH)
LINE = (
    r"(?:Epoch \d+ \| )?iter {micro_step} step {step} \| loss train: {loss}, val: %s"
    r" \| iter time: {micro_ms} ms"
)
WITH_VALIDATION, WITHOUT = LINE % "{carried_val_loss}", LINE % r"[\w./]{1,12}"
IN_MICRO_BATCHES = "steps counted in micro-batches"


def _finish(build: Builder, train: Rows, evals: Rows) -> LogFormat | None:
    take_carried(build, train, evals)
    micro, step = train["micro_step"], train["step"]
    if "micro_step" in train and "step" not in train:
        train["step"], train["seconds"] = micro, train["micro_seconds"]
        evals["step"] = evals["micro_step"]
        build.hazards[IN_MICRO_BATCHES] = len(train)
        return LIT_LLAMA
    with np.errstate(divide="ignore", invalid="ignore"):
        each = micro / step
    # A resumed run may have changed its accumulation; the last is that of the last run.
    whole = each[np.isfinite(each) & (each >= 1) & (each == np.round(each))]
    if len(whole):
        accumulation = int(whole[-1])
        formula = "micro-batches over steps of the training lines"
        build.header["gradient_accumulation_steps"] = derived(
            "gradient_accumulation_steps", accumulation, formula
        )
        train["seconds"] = train["micro_seconds"] * accumulation
        in_steps = evals["micro_step"] // accumulation
        evals["step"] = np.where(np.isfinite(evals["step"]), evals["step"], in_steps)
    at_the_end = np.isnan(evals["micro_step"]) & np.isnan(evals["step"])
    evals["step"] = np.where(at_the_end, _reached(train, evals), evals["step"])
    return None


def _reached(train: Rows, evals: Rows) -> Floats:
    """The step of an evaluation at the end: of the line before, or of the last evaluation by its turn where
    that stands between the two.
    """
    before = step_printed_before(train, evals)
    by_turn = np.roll(evals["step"], -1 if only_down(train["step"]) else 1)
    interval = np.median(np.abs(np.diff(train["step"]))) if len(train) > 1 else 0.0
    return np.where((by_turn > before) & (by_turn <= before + interval), by_turn, before)


LITGPT = Reader(
    format=FORMAT,
    begins=re.compile(r"iter \d+(?: (?:\| )?step \d+)?(?::| \||$)|Final evaluation \|"),
    shapes=(
        Shape("train", WITH_VALIDATION + r" \(step\)"),
        Shape("train", WITHOUT + r" \(step\)"),
        # a micro-batch within a step: nothing of its own to tell
        Shape("micro-batch", WITHOUT + r"(?! \()"),
        Shape(
            "train",
            r"iter {micro_step} (?:\| )?step {step}: loss {loss}, (?:iter|train) time: {micro_ms} ?ms"
            r" \(optimizer\.step\)",
        ),
        Shape(
            "micro-batch",
            r"iter {micro_step} (?:\| )?step {step}: loss {loss}, (?:iter|train) time: {micro_ms} ?ms(?! \()",
        ),
        Shape("train", r"iter {micro_step}: loss {loss}, time: {micro_ms}ms, speed: {_} toks/s/device"),
        Shape("eval", r"(?:iter|step) {micro_step}: val loss {val_loss}, val time: {_} ?ms"),
        Shape("eval", r"Final evaluation \| val loss: {val_loss} \|"),
    ),
    headers=(
        Header(r"Total parameters: {parameters_total}", weight=0.1),
        Header(r"Number of trainable parameters: {trained_parameters}"),
        Header(r"Number of non-trainable parameters: {frozen_parameters}"),
        Header(r"\bmicro_batch_size={micro_batch}[,)]"),
        Header(r"\bmax_seq_length={block_size}[,)]"),
        Header(r"\bmax_tokens={planned_tokens}[,)]"),
        Header(r"\| - Training Time +: {training_seconds} s"),
        Header(r"\| - Memory Used +: {peak_memory_bytes@GB} GB"),
        Header(r"Measured TFLOPs: \d", weight=0.1),
    ),
    finish=_finish,
)

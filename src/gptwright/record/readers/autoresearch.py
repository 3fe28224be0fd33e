"""autoresearch: train.py of karpathy/autoresearch, a short nanochat whose progress overwrites one line.

All steps stand on one line of the file, parted by carriage returns. The loss is a running average (0.9,
debiased) and the MFU is against an H100 whatever the device. A block of `key: value` lines ends the run.
"""

import re

from gptwright.record.evidence import LogFormat, TrainLoss
from gptwright.record.readers.build import Builder
from gptwright.record.readers.headers import Header
from gptwright.record.readers.reader import Reader
from gptwright.record.readers.shapes import FROM_LINE_START, WHOLE, Shape
from gptwright.record.readers.steps import step_before
from gptwright.record.readers.tables import Rows


def _finish(_build: Builder, train: Rows, evals: Rows) -> None:
    # The only evaluation is after the last step; the next update would have been number `step + 1`.
    evals["step"] = step_before(train, evals.line) + 1


AUTORESEARCH = Reader(
    format=LogFormat(
        name="autoresearch",
        train_loss=TrainLoss.SMOOTHED,
        has_dropout=False,
        evaluates_train=False,
        time_includes_evaluation=False,
        mfu_peak_flops=989.5e12,
    ),
    begins=re.compile(r"step \d{5,} ?(?:\(|$)|val_bpb: "),
    shapes=(
        Shape(
            "train",
            r"step {step} \({_}%\) \| loss: {loss} \| lrm: {_} \| dt: {ms}ms \| tok/sec: {tokens_per_second}"
            r" \| mfu: {mfu_percent}% \| epoch: {_} \| remaining: {_}s",
        ),
        Shape("eval", FROM_LINE_START + r"val_bpb: +{val_bpb}" + WHOLE[6]),
    ),
    headers=(
        Header(r"^Vocab size: {vocab_size}"),
        Header(r"^ *total +: {parameters_total}"),
        Header(r"Estimated FLOPs per token: {flops_per_token}"),
        Header(r"^Gradient accumulation steps: {gradient_accumulation_steps}"),
        Header(r"Model config: \{.{0,80}'sequence_len': {block_size},", weight=0.1),
        Header(r"Model config: \{.{0,200}'n_layer': {n_layer},"),
        Header(r"Model config: \{.{0,200}'n_head': {n_head},"),
        Header(r"Model config: \{.{0,200}'n_embd': {n_embd}[,}]"),
        Header(r"^training_seconds: +{training_seconds}"),
        Header(r"^peak_vram_mb: +{peak_memory_bytes@MiB}"),
        Header(r"^Time budget: \d+s", weight=0.1),
    ),
    finish=_finish,
)

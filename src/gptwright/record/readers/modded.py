"""modded-nanogpt: train_gpt.py of KellerJordan/modded-nanogpt and its records, from the first to today's.

A log begins with the program's whole source and, between rows of `=`, the output of nvidia-smi; warnings and
errors count only after the last row, because the source holds their texts. `train_time` is a clock that stops
during validation and starts again from zero after the first ten steps, so the time of a step is a difference.
Today's records print no training loss; older ones print that of one micro-batch of one process. No MFU, and
no dropout.
"""

import re
from collections.abc import Callable

import numpy as np

from gptwright.record.evidence import LogFormat, TrainLoss
from gptwright.record.readers.build import Builder
from gptwright.record.readers.headers import NVIDIA_SMI, Header
from gptwright.record.readers.reader import Reader
from gptwright.record.readers.shapes import WHOLE, Columns, Shape
from gptwright.record.readers.tables import Rows

ROW = re.compile(r"={20,}")
MORE_LOSSES = r"(?: val_(?!bpb)\w{1,20}:[\d.]{1,20}){0,4}"
CLOCK_MS = r" train_time:{clock_ms}ms"
CLOCK_SECONDS = r" train_time:{clock_seconds}s\b"
# Four decimals in most records, five in the third track, six in some of the second.
AS_PRINTED = r"(?:(?<=\.\d{4})|(?<=\.\d{5})|(?<=\.\d{6})|(?<=nan)|(?<=inf))"
STEP = r"step:{step}/{planned_steps}"
CLOCK_ROWS = Columns("train", "step", "clock_seconds")


def _after_the_source(build: Builder) -> Callable[[str, int], bool]:
    def take(text: str, _line: int) -> bool:
        if not ROW.fullmatch(text):
            return False
        build.forget_since_data()
        return True

    return take


def _finish(build: Builder, train: Rows, evals: Rows) -> None:
    if not len(train) and "clock" in evals:
        # Where only validation lines are printed, they are the readings of the clock.
        for line, step, clock in zip(evals.line, evals["step"], evals["clock"], strict=True):
            build.row(CLOCK_ROWS, int(line), (step, clock))
        train.read(build)
    steps, seconds = np.diff(train["step"]), np.diff(train["clock"])
    with np.errstate(divide="ignore", invalid="ignore"):
        each = np.where((steps > 0) & (seconds > 0), seconds / steps, np.nan)
    train["seconds"] = np.concatenate([np.full(min(1, len(train)), np.nan), each])


MODDED = Reader(
    format=LogFormat(
        name="modded-nanogpt",
        train_loss=TrainLoss.MICRO_BATCH,
        has_dropout=False,
        evaluates_train=False,
        time_includes_evaluation=False,
    ),
    begins=re.compile(r"step:\d+/\d|s:\d+ t[er]l"),
    shapes=(
        Shape("train", STEP + CLOCK_MS + r" step_avg:{_}ms"),
        Shape("train", STEP + r" train_loss:{loss} train_time:{clock_ms}ms step_avg:{_}ms"),
        Shape("train", STEP + r" train_loss:{loss}" + AS_PRINTED + CLOCK_MS),
        Shape("train", STEP + CLOCK_MS),
        Shape("train", STEP + CLOCK_SECONDS),
        Shape("train", STEP + r" train_loss:{loss}" + AS_PRINTED + CLOCK_SECONDS),
        Shape("eval", STEP + r" val_loss:{val_loss}" + AS_PRINTED + MORE_LOSSES + CLOCK_MS),
        Shape("eval", STEP + r" val_loss:{val_loss}" + AS_PRINTED + MORE_LOSSES + CLOCK_SECONDS),
        Shape("eval", STEP + r" val_loss:{val_loss}" + AS_PRINTED + r" val_bpb:{val_bpb}" + CLOCK_MS),
        Shape("eval", STEP + r" val_loss:{val_loss}" + AS_PRINTED + r" val_bpb:{val_bpb}" + CLOCK_SECONDS),
        Shape("train", r"s:{step} trl:{loss}" + WHOLE[6]),
        Shape("eval", r"s:{step} tel:{val_loss}" + WHOLE[6]),
    ),
    headers=(
        *NVIDIA_SMI,
        Header(r"peak memory (?:allocated|consumption): {peak_memory_bytes@MiB} MiB"),
    ),
    special=_after_the_source,
    finish=_finish,
    signs=((re.compile(r"^={20,}$"), 0.5),),
)

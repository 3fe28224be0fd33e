"""minGPT: projects/chargpt/chargpt.py of karpathy/minGPT. One batch is one step; nothing is evaluated."""

import re

from gptwright.record.evidence import LogFormat, TrainLoss
from gptwright.record.readers.headers import Header
from gptwright.record.readers.reader import Reader
from gptwright.record.readers.shapes import Shape

MINGPT = Reader(
    format=LogFormat(
        name="minGPT",
        train_loss=TrainLoss.STEP,
        has_dropout=True,
        evaluates_train=False,
        time_includes_evaluation=True,
    ),
    begins=re.compile(r"iter_dt \d"),
    shapes=(
        Shape(
            "train",
            r"iter_dt {ms}ms; iter {step}: train loss {loss}(?:(?<=\.\d{5})|(?<=nan)|(?<=inf))(?![\w.])",
        ),
    ),
    headers=(
        Header(r"number of parameters: {parameters_total@M}M"),
        Header(r"data has \d+ characters, {vocab_size} unique"),
    ),
)

"""ng-video-lecture: gpt.py of karpathy/ng-video-lecture. It prints its size and evaluations, nothing else."""

import re

from gptwright.record.evidence import LogFormat, TrainLoss
from gptwright.record.readers.headers import Header
from gptwright.record.readers.nanogpt import EVAL
from gptwright.record.readers.reader import Reader

LECTURE = Reader(
    format=LogFormat(
        name="ng-video-lecture",
        train_loss=TrainLoss.ABSENT,
        has_dropout=True,
        evaluates_train=True,
        time_includes_evaluation=False,
    ),
    begins=re.compile(r"step \d+(?::|$)"),
    shapes=(EVAL,),
    headers=(
        Header(r"^{parameters_total@M} M parameters", weight=0.5),
        Header(r"^number of parameters: {parameters_total@M} M\b", weight=0.5),
    ),
)

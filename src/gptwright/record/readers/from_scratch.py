"""LLMs-from-scratch: the training loops of rasbt/LLMs-from-scratch, chapters 5 to 7 and their appendices.

Every line is an evaluation: both losses are taken in eval mode over `eval_iter` batches. Its step begins at
-1 and is counted up before the line, so it is the number of updates less one. A sample of text follows each
epoch.
"""

import re

import numpy as np

from gptwright.facts import logged
from gptwright.record.evidence import LogFormat, TrainLoss
from gptwright.record.readers.build import Builder
from gptwright.record.readers.reader import Reader
from gptwright.record.readers.shapes import Shape
from gptwright.record.readers.tables import Rows


def _finish(build: Builder, _train: Rows, evals: Rows) -> None:
    epochs = np.flatnonzero(np.isfinite(evals["epoch"]))
    if len(epochs):
        last = int(epochs[-1])
        build.header["epochs"] = logged("epochs", float(evals["epoch"][last]), int(evals.line[last]))


FROM_SCRATCH = Reader(
    format=LogFormat(
        name="LLMs-from-scratch",
        train_loss=TrainLoss.ABSENT,
        has_dropout=True,
        evaluates_train=True,
        time_includes_evaluation=False,
    ),
    begins=re.compile(r"\bEp \d+(?: \((?:Step|Iter)|, Step|$)"),
    shapes=(
        Shape(
            "eval",
            r"Ep {epoch} \((?:Step|Iter) {step}\): Train loss {train_loss}, Val(?:idate)? loss"
            r" {val_loss}(?![\d.])",
        ),
        # the chapter on speed
        Shape("eval", r"Ep {epoch}, Step {step}, Train: {train_loss}, Val: {val_loss}, Step tok/sec: {_}"),
    ),
    finish=_finish,
)

"""mlx-lm (and mlx-examples' lora.py): tuner/trainer.py of ml-explore/mlx-lm.

The training loss is the mean over the steps since the report before. Validation runs before the step whose
number it prints. Speed is in steps a second, which is one over the seconds of a step.
"""

import re

import numpy as np

from gptwright.record.evidence import LogFormat, TrainLoss
from gptwright.record.readers.build import Builder
from gptwright.record.readers.headers import Header
from gptwright.record.readers.reader import Reader
from gptwright.record.readers.shapes import Shape
from gptwright.record.readers.tables import Rows, note_peak_memory, note_tokens


def _finish(build: Builder, train: Rows, _evals: Rows) -> None:
    rate = train["steps_per_second"]
    train["seconds"] = np.where(rate > 0, 1 / np.where(rate > 0, rate, 1.0), np.nan)
    note_peak_memory(build, train)
    note_tokens(build, train)


MLX = Reader(
    format=LogFormat(
        name="MLX",
        train_loss=TrainLoss.INTERVAL,
        has_dropout=True,
        evaluates_train=False,
        time_includes_evaluation=False,
    ),
    begins=re.compile(r"Iter \d+(?:: (?:Train|Val)|$)"),
    shapes=(
        Shape(
            "train",
            r"Iter {step}: Train loss {loss}, Learning Rate {learning_rate}, It/sec {steps_per_second},"
            r" Tokens/sec {tokens_per_second}, Trained Tokens {tokens_seen}"
            r"(?:, Peak ?(?:mem )?{memory_gb} GB)?",
        ),
        Shape(
            "train",
            r"Iter {step}: Train loss {loss}, It/sec {steps_per_second}, Tokens/sec {tokens_per_second}"
            r"(?![\d.])",
        ),
        Shape("eval", r"Iter {step}: Val loss {val_loss}, Val took {_}s"),
    ),
    headers=(
        Header(r"Trainable parameters: \d+\.\d+% \({trained_parameters@M}M/{parameters_total@M}M\)"),
        Header(r"^Loading pretrained model", means={"settings.init_from": "pretrained"}),
        Header(r"Starting training\.{2,3}, iters: {planned_steps}", weight=0.1),
    ),
    finish=_finish,
)

"""llama2.c: train.py of karpathy/llama2.c, a nanoGPT whose training lines begin with the step.

A line that begins with a number has nothing in front of it that would show a keystroke glued to it: letters
there make the step unsure, and digits make another step of it, which only its neighbours give away.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType

from gptwright.facts import Value
from gptwright.record.evidence import LogFormat, TrainLoss
from gptwright.record.readers.build import Builder
from gptwright.record.readers.nanogpt import A100_PEAK_FLOPS, EVAL, HEADERS, echoed_settings
from gptwright.record.readers.reader import Reader
from gptwright.record.readers.shapes import FROM_LINE_START, Shape
from gptwright.record.readers.steps import drop_glued_digits
from gptwright.record.readers.tables import Rows

# train.py at 350e04f, under nanoGPT's names; the decay ends with the run, at zero.
DEFAULTS: Mapping[str, Value] = MappingProxyType(
    {
        "eval_interval": 2000,
        "log_interval": 1,
        "eval_iters": 100,
        "batch_size": 128,
        "block_size": 256,
        "gradient_accumulation_steps": 4,
        "n_layer": 6,
        "n_head": 6,
        "n_embd": 288,
        "dropout": 0.0,
        "learning_rate": 5e-4,
        "max_iters": 100_000,
        "weight_decay": 0.1,
        "beta1": 0.9,
        "beta2": 0.95,
        "grad_clip": 1.0,
        "decay_lr": True,
        "warmup_iters": 1000,
        "min_lr": 0.0,
        "compile": True,
    }
)


def _finish(build: Builder, train: Rows, _evals: Rows) -> None:
    build.lines_skipped += drop_glued_digits(train)


LLAMA2C = Reader(
    format=LogFormat(
        name="llama2.c",
        train_loss=TrainLoss.MICRO_BATCH,
        has_dropout=True,
        evaluates_train=True,
        time_includes_evaluation=True,
        mfu_peak_flops=A100_PEAK_FLOPS,
        defaults=DEFAULTS,
    ),
    begins=re.compile(r"\d{1,12} \| loss|step \d+(?::|$)"),
    shapes=(
        Shape(
            "train",
            FROM_LINE_START + r"{step} \| loss {loss} \| lr {learning_rate} \| {ms}ms \| mfu {mfu_percent}%",
        ),
        # forks without an MFU
        Shape("train", FROM_LINE_START + r"{step} \| loss {loss} \| lr {learning_rate} \| {ms}ms(?! \|)"),
        EVAL,
    ),
    headers=HEADERS,
    special=echoed_settings,
    finish=_finish,
    signs=((re.compile(r"breaks down as: \d+ grad accum steps"), 0.02),),
)

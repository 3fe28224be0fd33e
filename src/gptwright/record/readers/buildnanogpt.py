"""build-nanogpt: train_gpt2.py of karpathy/build-nanogpt, its standard output and its log/log.txt.

The loss is the mean over the step's batch and all processes. The clock starts before the evaluation, so a
step with one in it is long. The validation line has no step: it was taken before the step that follows.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType

from gptwright.facts import Value
from gptwright.record.evidence import LogFormat, TrainLoss
from gptwright.record.readers.build import Builder
from gptwright.record.readers.headers import Header
from gptwright.record.readers.nanogpt import OPTIMIZER
from gptwright.record.readers.reader import Reader
from gptwright.record.readers.shapes import FROM_LINE_START, WHOLE, Shape
from gptwright.record.readers.steps import drop_glued_digits, fill_from_next
from gptwright.record.readers.tables import Rows

# train_gpt2.py at 6104ab1.
DEFAULTS: Mapping[str, Value] = MappingProxyType(
    {
        "batch_size": 64,
        "block_size": 1024,
        "n_layer": 12,
        "n_head": 12,
        "n_embd": 768,
        "vocab_size": 50304,
        "bias": True,
        "learning_rate": 6e-4,
        "min_lr": 6e-5,
        "warmup_iters": 715,
        "max_iters": 19_073,
        "lr_decay_iters": 19_073,
        "eval_interval": 250,
        "eval_iters": 20,
        "weight_decay": 0.1,
        "compile": False,
    }
)


def _finish(build: Builder, train: Rows, evals: Rows) -> None:
    build.lines_skipped += drop_glued_digits(train)
    fill_from_next(train, evals)


BUILD_NANOGPT = Reader(
    format=LogFormat(
        name="build-nanogpt",
        train_loss=TrainLoss.STEP,
        has_dropout=False,
        evaluates_train=False,
        time_includes_evaluation=True,
        evaluates_same_windows=True,
        gpt2_shaped=True,
        defaults=DEFAULTS,
    ),
    begins=re.compile(r"step +\d+ \||validation loss:|(?:^|[\s:])\d+ (?:train|val) \d"),
    shapes=(
        Shape(
            "train",
            r"step +{step} \| loss: {loss} \| lr {learning_rate} \| norm: {grad_norm} \| dt: {ms}ms"
            r" \| tok/sec: {tokens_per_second}" + WHOLE[2],
        ),
        Shape(
            "train",
            r"step +{step} \| loss: {loss} \| lr:? {learning_rate} \| norm: ?{grad_norm} \| dt: {ms}ms"
            r" \| tok/sec: {tokens_per_second}" + WHOLE[2],
        ),
        Shape("eval", r"validation loss: {val_loss}" + WHOLE[4], weight=0.5),
        Shape("train", FROM_LINE_START + r"{step} train {loss}" + WHOLE[6]),
        Shape("eval", FROM_LINE_START + r"{step} val {val_loss}" + WHOLE[4], weight=0.5),
    ),
    headers=(
        Header(r"total desired batch size: {tokens_per_step}", weight=0.02),
        Header(r"calculated gradient accumulation steps: {gradient_accumulation_steps}", weight=0.02),
        *OPTIMIZER,
        Header(r"using device: cpu", means={"device": "cpu"}),
        Header(r"using device: mps", means={"device": "mps"}),
    ),
    finish=_finish,
)

"""Megatron-LM: training_log of NVIDIA/Megatron-LM, and forks that keep its line.

The line is a list of `name: value |` in an order that releases change, so each value is looked for by its
name. The loss and the time are means over the steps since the line before. All arguments are printed at the
start, one a line with dots.
"""

import re
from collections.abc import Callable

from gptwright.facts import derived, logged
from gptwright.record.evidence import EventKind, LogFormat, TrainLoss
from gptwright.record.readers.build import Builder
from gptwright.record.readers.fields import real_number, whole_number
from gptwright.record.readers.headers import Header, Said
from gptwright.record.readers.reader import Reader
from gptwright.record.readers.shapes import Shape
from gptwright.record.readers.tables import Rows

ARGUMENT = re.compile(r"^ *(\w{2,40}) \.{2,80} (\S.{0,80})$")
ARGUMENTS: dict[str, tuple[str, Callable[[str], int | float]]] = {
    "num_layers": ("n_layer", whole_number),
    "hidden_size": ("n_embd", whole_number),
    "num_attention_heads": ("n_head", whole_number),
    "seq_length": ("block_size", whole_number),
    "micro_batch_size": ("micro_batch", whole_number),
    "world_size": ("world_size", whole_number),
    "train_iters": ("planned_steps", whole_number),
    "padded_vocab_size": ("vocab_size", whole_number),
    "lr": ("settings.learning_rate", real_number),
    "min_lr": ("settings.min_lr", real_number),
    "weight_decay": ("settings.weight_decay", real_number),
    "hidden_dropout": ("settings.dropout", real_number),
}


def _arguments(build: Builder) -> Callable[[str, int], bool]:
    def take(text: str, line: int) -> bool:
        argument = ARGUMENT.match(text)
        if argument is None:
            return False
        if argument[1] in ARGUMENTS:
            name, read = ARGUMENTS[argument[1]]
            try:
                value = read(argument[2])
            except ValueError:
                return True
            build.said(Said(name, value), line)
        return True

    return take


def _finish(build: Builder, train: Rows, _evals: Rows) -> None:
    for line, skipped in zip(train.line, train["skipped"], strict=True):
        if skipped > 0:
            build.event(EventKind.SKIPPED_UPDATE, int(line), f"number of skipped iterations: {skipped:.0f}")
    if not len(train) or not train["sequences"][-1] > 0:
        return
    batch, context = int(train["sequences"][-1]), build.header.get("block_size")
    if context is None:
        # A config may know it.
        build.header["global_batch"] = logged("global_batch", batch, int(train.line[-1]), unit="sequences")
    else:
        tokens = batch * int(context.number)
        formula = "global batch size × seq_length"
        build.header["tokens_per_step"] = derived("tokens_per_step", tokens, formula, unit="tokens")


MEGATRON = Reader(
    format=LogFormat(
        name="Megatron-LM",
        train_loss=TrainLoss.INTERVAL,
        has_dropout=True,
        evaluates_train=False,
        time_includes_evaluation=False,
    ),
    begins=re.compile(r"iteration +\d+/ *\d+ \||validation (?:loss|results) at iteration \d"),
    shapes=(
        Shape(
            "train",
            r"iteration +{step}/ *{planned_steps} \|(?>.{0,200}?elapsed time per iteration \(ms\): ){ms} \|"
            r"(?>.{0,200}?learning rate: ){learning_rate} \|(?>.{0,100}?global batch size: +){sequences} \|"
            r"(?>.{0,100}?lm loss: ){loss} \|(?:(?>[^|]{0,60}\|){0,3}? grad norm: {grad_norm} \|)?"
            r"(?:(?>[^|]{0,60}\|){0,4}? number of skipped iterations: +{skipped} \|)?",
        ),
        # Where no iteration of an interval had a loss, none is printed, but how many were NaN is.
        # Nor where it is NaN, which is not above 0: then the gradient norm says so.
        Shape(
            "train",
            r"iteration +{step}/ *{planned_steps} \|(?>.{0,200}?elapsed time per iteration \(ms\): ){ms} \|"
            r"(?>.{0,200}?learning rate: ){learning_rate} \|(?>.{0,100}?global batch size: +){sequences} \|"
            r"(?: loss scale: [^|]{0,60}\|)? grad norm: (?=nan){loss} \|",
        ),
        Shape(
            "train",
            r"iteration +{step}/ *{planned_steps} \|(?>.{0,200}?elapsed time per iteration \(ms\): ){ms} \|"
            r"(?>.{0,200}?learning rate: ){learning_rate} \|(?>.{0,100}?global batch size: +){sequences} \|"
            r"(?:(?> (?:loss scale|grad norm|num zeros|params norm)[^|]{0,60}\|)){0,4}?"
            r" number of skipped iterations: +{skipped} \| number of {loss} iterations: +[1-9]\d{0,9} \|",
        ),
        Shape("eval", r"validation loss at iteration {step}[^|]{0,40}\| lm loss value: {val_loss} \|"),
        # GPT-NeoX
        Shape(
            "train",
            r"iteration +{step}/ *{planned_steps} \| elapsed time per iteration \(ms\): {ms} \|"
            r" learning rate: {learning_rate} \|(?>[^|]{0,60}\|){0,2}? lm_loss: {loss} \|",
        ),
        Shape("eval", r"validation results at iteration {step} \| lm_loss value: {val_loss} \|"),
    ),
    headers=(
        Header(
            r"number of parameters on \(tensor, pipeline\) model parallel rank \(0, 0\): {parameters_total}"
        ),
        Header(r"^-{10,} arguments -{10,}", weight=0.1),
    ),
    special=_arguments,
    finish=_finish,
)

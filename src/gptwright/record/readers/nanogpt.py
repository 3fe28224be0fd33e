"""nanoGPT: train.py, model.py, configurator.py of karpathy/nanoGPT, and what forks and pastes make of them.

`iter` lines hold the last micro-batch, in training mode; `step` lines hold both splits in eval mode, averaged
over eval_iters batches. The time of an `iter` line that follows a `step` line includes that evaluation. The
MFU is a running average against an A100 whatever the device, -100 % until its fifth step.

A config given on the command line is echoed as text before the run, and each option as `Overriding: …`. Who
pastes a log into a chat writes settings around it, or the command: they are facts of the header, because they
are no whole config, and what they leave out may be anything.
"""

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

from gptwright.facts import Value
from gptwright.record.configs import literal
from gptwright.record.evidence import LogFormat, TrainLoss
from gptwright.record.readers.build import Builder
from gptwright.record.readers.headers import Header, Said, fact
from gptwright.record.readers.reader import Reader
from gptwright.record.readers.shapes import NO_COMMA, Shape, same_decimals

A100_PEAK_FLOPS = 312e12

# train.py at 3adf61e.
DEFAULTS: Mapping[str, Value] = MappingProxyType(
    {
        "eval_interval": 2000,
        "log_interval": 1,
        "eval_iters": 200,
        "init_from": "scratch",
        "dataset": "openwebtext",
        "gradient_accumulation_steps": 40,
        "batch_size": 12,
        "block_size": 1024,
        "n_layer": 12,
        "n_head": 12,
        "n_embd": 768,
        "dropout": 0.0,
        "bias": False,
        "learning_rate": 6e-4,
        "max_iters": 600_000,
        "weight_decay": 0.1,
        "beta1": 0.9,
        "beta2": 0.95,
        "grad_clip": 1.0,
        "decay_lr": True,
        "warmup_iters": 2000,
        "lr_decay_iters": 600_000,
        "min_lr": 6e-5,
        "compile": True,
    }
)

EVAL = Shape(
    "eval",
    r"step {step}: train loss {train_loss}, val loss {val_loss}(?![\d.])",
    weight=0.5,
    check=same_decimals,
)
TRAIN = (
    Shape("train", r"iter {step}: loss {loss}, time {ms}ms, mfu {mfu_percent}%"),
    # forks that print through rich or with a space before the unit
    Shape("train", r"iter {step}: loss {loss}, time {ms} ms, mfu {mfu_percent}%"),
    # before February 2023 there was no MFU
    Shape("train", r"iter {step}: loss {loss}, time {ms}ms" + NO_COMMA),
    # karpathy/nanoGPT#167
    Shape("train", r"iter {step}: lr {learning_rate}, loss {loss}, time {ms}ms, mfu {mfu_percent}%"),
    Shape(
        "train", r"iter {step}: loss {loss}, lr {learning_rate}, time {ms}ms(?:, mfu {mfu_percent}%)?(?!,)"
    ),
)
OPTIMIZER = (
    Header(r"num decayed parameter tensors: \d+, with {decayed_parameters} parameters"),
    Header(r"num non-decayed parameter tensors: \d+, with {not_decayed_parameters} parameters"),
    Header(r"using fused AdamW: {fused}"),
)
HEADERS = (
    Header(r"tokens per iteration will be: {tokens_per_step}"),
    Header(
        r"breaks down as: {gradient_accumulation_steps} grad accum steps \* {world_size} processes"
        r" \* {micro_batch} batch size \* {block_size} max seq len"
    ),
    Header(r"number of parameters: {parameters@M} ?M\b"),
    *OPTIMIZER,
    Header(r"compiling the model", means={"compile": True}),
    Header(r"found vocab_size = {vocab_size} \(inside"),
    Header(r"defaulting to vocab_size of GPT-2 to {vocab_size} \("),
    Header(r"vocab_size not found in .{1,300}, using GPT-2 default of {vocab_size}"),
    Header(r"forcing vocab_size={vocab_size}, block_size={block_size}, bias=True"),
    Header(r"Initializing a new model from scratch", means={"settings.init_from": "scratch"}),
    Header(r"Initializing from OpenAI GPT-2 weights: {settings.init_from}(?:\s|$)"),
    Header(r"overriding dropout rate to {settings.dropout}"),
)
BEGINS = re.compile(r"(?:iter|step) \d+(?::|$)")

ECHO = re.compile(r"Overriding config with \S+:")
OPTION = re.compile(r"Overriding: (\w+) = (.+)")
ASSIGNMENT = re.compile(r"([A-Za-z_]\w*) *= *([^#=][^#]*?|'[^']*'|\"[^\"]*\") *(?:#.*)?")


# How a person writes settings into a message: a line of its own, or options of the command.
PASTED = re.compile(r"\W{0,4}([A-Za-z_]\w{2,40}) {0,4}[:=] {0,4}([^#=:,]{1,40}?),? {0,20}(?:#.*)?")
COMMAND = re.compile(r"\btrain\w*\.py\b")
FLAG = re.compile(r"--(\w{3,40})[= ]([^\s-]\S{0,60})")
# `dict(n_layer=12, n_head=12)` or `{"n_layer": 12, …}` in one line.
PAIR = re.compile(
    r"\b([a-z_]\w{2,40})[\"']?\s{0,4}[:=]\s{0,4}(-?\d[\w.+-]{0,20}|True|False|'[^']{1,60}'|\"[^\"]{1,60}\")"
)
A_NAME = re.compile(r"[\w./-]+")


def _pasted_settings(build: Builder, text: str, line: int) -> bool:
    """Keeps what a message says of nanoGPT's settings, unless the log itself says it."""
    alone = PASTED.fullmatch(text)
    if COMMAND.search(text):
        found = FLAG.findall(text)
    elif alone is not None:
        found = [alone.groups()]
    else:
        found = PAIR.findall(text)
        found = found if sum(name in DEFAULTS for name, _ in found) > 1 else []
    taken = False
    for name, written in found:
        default = DEFAULTS.get(name)
        try:
            value = literal(written)
        except ValueError:
            value = written
        a_word = isinstance(value, str) and A_NAME.fullmatch(value) is not None
        if default is not None and (a_word if isinstance(default, str) else not isinstance(value, str)):
            build.header.setdefault(name, fact(Said(name, value), line))
            taken = True
    return taken


def echoed_settings(build: Builder) -> Callable[[str, int], bool]:
    """Reads the config that nanoGPT echoes before a run."""
    echoing = False

    def take(text: str, line: int) -> bool:
        nonlocal echoing
        if ECHO.search(text):
            echoing = True
            return True
        option = OPTION.search(text)
        found = option or (ASSIGNMENT.fullmatch(text.strip()) if echoing and not build.has_rows() else None)
        if found is None:
            return _pasted_settings(build, text, line)
        try:
            build.setting(found[1], literal(found[2]), line)
        except ValueError:
            # configurator.py prints a string without its quotes
            if option:
                build.setting(found[1], found[2].strip(), line)
        return True

    return take


NANOGPT = Reader(
    format=LogFormat(
        name="nanoGPT",
        train_loss=TrainLoss.MICRO_BATCH,
        has_dropout=True,
        evaluates_train=True,
        time_includes_evaluation=True,
        gpt2_shaped=True,
        mfu_peak_flops=A100_PEAK_FLOPS,
        defaults=DEFAULTS,
    ),
    begins=BEGINS,
    shapes=(*TRAIN, EVAL),
    headers=HEADERS,
    special=echoed_settings,
    signs=((re.compile(r"Overriding(?: config with|:) \w"), 0.01),),
)

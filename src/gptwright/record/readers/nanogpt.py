"""nanoGPT: train.py, model.py, configurator.py of karpathy/nanoGPT, and what forks and pastes make of them.

`iter` lines hold the last micro-batch, in training mode; `step` lines hold both splits in eval mode, averaged
over eval_iters batches. The time of an `iter` line that follows a `step` line includes that evaluation. The
MFU is a running average against an A100 whatever the device, -100 % until its fifth step.

A config given on the command line is echoed as text before the run, and each option as `Overriding: …`. Who
pastes a log into a chat writes settings around it, or the command: they are facts of the header, because they
are no whole config, and what they leave out may be anything. Comments come along with settings, and may claim
what the values do not hold.
"""

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

from gptwright.facts import Value
from gptwright.record.configs import literal
from gptwright.record.evidence import LogFormat, TrainLoss
from gptwright.record.readers.build import Builder
from gptwright.record.readers.headers import NVIDIA_SMI, Header, Said, fact
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

# What forks print among them, each with its name: `ppl 71.3`, `tok/s: 51,200`, `norm 0.91`, `lr 6.0e-04`.
MAY = (
    r"(?:[A-Za-z][\w/.]{0,20}(?: [A-Za-z][\w/.]{0,20})?[:=]? ?"
    r"[-\d.,e+]{0,15}[\dn](?: ?[A-Za-z%/]{1,8})?, ?){0,4}"
)

EVAL = Shape(
    "eval",
    r"step {step}(?:/\d+)?: train loss {train_loss}, val loss {val_loss}(?![\d.])",
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
    Shape(
        "train",
        rf"iter {{step}}(?:/\d+)?: {MAY}loss {{loss}}, {MAY}time {{ms}} ?ms, {MAY}mfu {{mfu_percent}}%",
    ),
    Shape(
        "train",
        rf"iter {{step}}(?:/\d+)?: {MAY}loss {{loss}}, {MAY}time {{seconds}} ?s, {MAY}mfu {{mfu_percent}}%",
    ),
)
OPTIMIZER = (
    Header(r"num decayed parameter tensors: \d+, with {decayed_parameters} parameters"),
    Header(r"num non-decayed parameter tensors: \d+, with {not_decayed_parameters} parameters"),
    Header(r"using fused AdamW: {fused}"),
)
MAKES = "NVIDIA|GeForce|RTX|GTX|Tesla|Quadro|AMD|Apple"
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
    Header(r"found vocab_size = \d+ \(inside (?:[^()\n]{0,200}[/\\])?{data_folder}[/\\]meta\.pkl"),
    # forks, and who pastes a log
    Header(rf"(?:[Dd]evice|GPU)(?: name)?: *(?={MAKES}){{device}}(?:,|$)"),
    Header(r"defaulting to vocab_size of GPT-2 to {vocab_size} \("),
    Header(r"vocab_size not found in .{1,300}, using GPT-2 default of {vocab_size}"),
    Header(r"forcing vocab_size={vocab_size}, block_size={block_size}, bias=True"),
    Header(r"Initializing a new model from scratch", means={"settings.init_from": "scratch"}),
    Header(r"Initializing from OpenAI GPT-2 weights: {settings.init_from}(?:\s|$)"),
    Header(r"overriding dropout rate to {settings.dropout}"),
    *NVIDIA_SMI,
)
BEGINS = re.compile(r"(?:iter|step) \d+(?:/\d+)?(?::|$)")

ECHO = re.compile(r"Overriding config with \S+:")
OPTION = re.compile(r"Overriding: (\w+) = (.+)")
ASSIGNMENT = re.compile(r"([A-Za-z_]\w*) *= *([^#=][^#]*?|'[^']*'|\"[^\"]*\") *(?:#(.*))?")
COMMENT = re.compile(r"\s*#+(?!\w)(.*)")

# How a person writes settings into a message: a line of its own, or options of the command.
PASTED = re.compile(r"\W{0,4}([A-Za-z_]\w{2,40}) {0,4}[:=] {0,4}([^#=:,]{1,40}?),? {0,20}(?:#(.*))?")
COMMAND = re.compile(r"\btrain\w*\.py\b")
FLAG = re.compile(r"--(\w{3,40})[= ]([^\s-]\S{0,60})")
# `dict(n_layer=12, n_head=12)` or `{"n_layer": 12, …}` in one line.
PAIR = re.compile(
    r"\b([a-z_]\w{2,40})[\"']?\s{0,4}[:=]\s{0,4}(-?\d[\w.+-]{0,20}|True|False|'[^']{1,60}'|\"[^\"]{1,60}\")"
)
A_NAME = re.compile(r"[\w./-]+")


class Settings:
    """Reads the config that nanoGPT echoes before a run, and settings that a message around it writes.

    Args:
        build: where facts, settings and comments go.
    """

    def __init__(self, build: Builder) -> None:
        self._build = build
        self._echoing = False
        # A comment by itself belongs to a config if a setting, or another one, stands on the next line to it.
        self._above: list[tuple[str, int]] = []
        self._last_line = -1
        # The last line that said something new, until a message writes the same settings with other values.
        self._last_new_line = 0
        self._another_config = False

    def take(self, text: str, line: int) -> bool:
        """Takes a line if it is a setting, or a comment between settings."""
        if ECHO.search(text):
            self._echoing = True
            return True
        option = OPTION.search(text)
        echoes = self._echoing and not self._build.has_rows()
        found = option or (ASSIGNMENT.fullmatch(text.strip()) if echoes else None)
        if found is None:
            comment = COMMENT.fullmatch(text)
            if comment is not None:
                self._between(comment[1], line)
                return False
            return self._pasted(text, line)
        try:
            self._build.setting(found[1], literal(found[2]), line)
        except ValueError:
            # configurator.py prints a string without its quotes
            if option:
                self._build.setting(found[1], found[2].strip(), line)
        if option:
            # What stands beside a value of the file is true of that one, and says nothing of the option's.
            comments = self._build.comments
            self._build.comments = [comment for comment in comments if comment.field != found[1]]
        self._beside(None if option or self._is_overridden(found[1]) else found[3], line, found[1])
        return True

    def _is_overridden(self, name: str) -> bool:
        """Whether the command in front of an echo gives a setting another value."""
        given, echoed = self._build.header.get(name), self._build.settings.get(name)
        return given is not None and echoed is not None and given.value != echoed.value

    def _pasted(self, text: str, line: int) -> bool:
        """Keeps what a message says of nanoGPT's settings, unless the log itself says it."""
        alone = PASTED.fullmatch(text)
        if COMMAND.search(text):
            found = FLAG.findall(text)
        elif alone is not None:
            found = [(alone[1], alone[2])]
        else:
            found = PAIR.findall(text)
            found = found if sum(name in DEFAULTS for name, _ in found) > 1 else []
        taken = [name for name, written in found if self._kept(name, written, line)]
        if taken:
            self._beside(alone[3] if alone is not None else None, line, taken[0])
        return bool(taken)

    def _kept(self, name: str, written: str, line: int) -> bool:
        default = DEFAULTS.get(name)
        try:
            value = literal(written)
        except ValueError:
            value = written
        a_word = isinstance(value, str) and A_NAME.fullmatch(value) is not None
        if default is None or not (a_word if isinstance(default, str) else not isinstance(value, str)):
            return False
        said = fact(Said(name, value), line)
        before = self._build.header.setdefault(name, said)
        if before.value != value:
            self._build.said_again.append(said)
            # What is advised to change has comments of its own.
            self._another_config = True
            comments = self._build.comments
            self._build.comments = [comment for comment in comments if comment.line <= self._last_new_line]
        elif before.source == f"log:{line}":
            self._last_new_line = line
        return True

    def _beside(self, comment: str | None, line: int, field: str) -> None:
        """Keeps the comment behind a setting, and those that stand right above it."""
        above, self._above = self._above, []
        if self._another_config:
            return
        if above and above[-1][1] == line - 1:
            for text, at in above:
                self._build.comment(text, at, None)
        if comment:
            self._build.comment(comment, line, field)
        self._last_line = line

    def _between(self, comment: str, line: int) -> None:
        """Keeps a comment right below a setting; another one waits for what follows."""
        if self._last_line == line - 1:
            self._build.comment(comment, line, None)
            self._last_line = line
        elif self._above and self._above[-1][1] == line - 1:
            self._above.append((comment, line))
        else:
            self._above = [(comment, line)]


def echoed_settings(build: Builder) -> Callable[[str, int], bool]:
    """What reads the settings around one log."""
    return Settings(build).take


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

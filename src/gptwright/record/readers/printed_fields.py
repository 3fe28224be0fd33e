"""What a line that somebody's own training loop prints says, by the words in front of its numbers.

Such loops print a counter (`step`, `iter`, `update`, a bar's `10/704`, `epoch`) and names with numbers, in
any order and with any signs between. A number counts only with its name directly in front (for speeds: its
unit directly behind), so that what has another name is never taken for a loss. A perplexity that stands
alone is read as what it is, the exponential of a loss.
"""

import math
import re
from dataclasses import dataclass

from gptwright.record.readers.fields import LOSS

BETWEEN = r"[\"'\])]{0,2}\s{0,8}(?:[:=|]|is|was)?\s{0,8}[\"'\[]?"
# A whole number in front of a comma and digits is the beginning of another one.
VALUE = rf"(?:\d{{1,3}}(?:,\d{{3}})+\.\d{{1,20}}|(?!\d{{1,12}},\d){LOSS})"
NUMBER = (
    r"(\d{1,3}(?:,\d{3})+(?![\d,])|\d{1,3}(?:_\d{3})+(?![\d_])"
    r"|\d{1,9}(?:\.\d{1,3})?k(?![a-z])|\d{1,12})"
)
WHOLE = rf"{NUMBER}(?![\d.]*\.\d|\d*%|\d*\s?m?s\b)(?:\s{{0,8}}(?:/|of)\s{{0,8}}{NUMBER})?"
# W&B counts its own calls in `_step`, beside the trainer's step; `52 ms/step  31200 tok/s` counts none.
STEP = re.compile(
    r"(?<![a-z])(?<![^\w]_)(?<!^_)(?<![m\d ]s/)(?<!sec/)"
    r"(?:global[_ ]?step|step|iter|iteration|update|num_updates|step_num)s?"
    r"(?:[\"']?\s{0,8}[:=#]?\s{0,8}\[?\(?\s{0,8})" + WHOLE,
    re.IGNORECASE,
)
CALLS = re.compile(r"(?<![a-z0-9])_step(?:[\"']?\s{0,8}[:=]\s{0,8})" + WHOLE, re.IGNORECASE)
# "batch 16 x 512" is the shape of one.
BATCH = re.compile(
    r"(?<![a-z/])(?:batch|ba)(?:[\"']?\s{0,8}[:=#]?\s{0,8}\[?\s{0,8})" + WHOLE + r"(?!\d|\s?[x×*]\s?\d)",
    re.IGNORECASE,
)
BAR = re.compile(r"(?<![\d.])(\d{1,12})/(\d{1,12})\s{0,4}(?:\[[\d:?=.>]{2,60}|[━╸╺─]{3,60})")
# gpt-2-simple: the step and the seconds since the start.
CLOCKED = re.compile(r"^\W{0,4}\[(\d{1,12}) \| \d{1,12}\.\d\d\]")
# `250 iterations -- validation loss 2.11`, and char-rnn's `100/13000 (epoch 0.1)`, at the start of a line.
COUNTED = re.compile(
    r"^\W{0,12}(?:after )?(\d{1,12}) (?:steps|iterations|iters|updates)(?![a-z])"
    r"|^\W{0,4}(\d{1,12})/(\d{1,12}) \(epoch"
    # Flax's writer: `[100] loss=…`; a loop's own `it=100`
    r"|\[(\d{1,12})\] (?=[\w/ ]{0,30}loss\b)|^\W{0,4}(\d{1,12}) (?=train(?:ing)? loss\b)"
    r"|(?<![\w.])it[:=] {0,4}(\d{1,9}(?:\.\d{1,3})?k|\d{1,12})(?![\w.])",
    re.IGNORECASE,
)
# A pair by itself, as `[100/300]`, or behind the epoch: fairseq's, and MiniMind's `Epoch:[1/2](100/300)`.
OF_A_PAIR = r"(\d{1,9}(?:\.\d{1,3})?k|\d{1,12})"
PAIR = re.compile(
    rf"\[\s{{0,8}}{OF_A_PAIR}\s{{0,2}}/\s{{0,8}}{OF_A_PAIR}\s{{0,2}}\]"
    # `03/25 23:58:44` is a date
    r"|^[\s:|]{0,12}(?!\d{1,2}/\d{1,2}\s\d\d:\d\d:\d\d)(\d{1,12})\s{0,2}/\s{0,2}(\d{1,12})(?=\s)"
    r"|^\]\s{0,2}\((\d{1,12})/(\d{1,12})\)"
)
EPOCH = re.compile(
    r"(?<![a-z])(?:epoch|ep)s?(?:[\"']?\s{0,8}[:=#]?\s{0,8}\[?\s{0,8})(\d{1,9}(?:\.\d{1,12})?)"
    r"(?:\s{0,2}/\s{0,8}(\d{1,9}))?",
    re.IGNORECASE,
)
NAMED = re.compile(
    r"(?<![a-z0-9])((?:[a-z]{1,20}[ _/.-]{1,3}){0,3})"
    r"((?:cross[ _-]?entropy[ _]?)?loss|nll|cross[ _-]?entropy|ppl|perplexity)"
    r"((?:(?:/|[ _](?=train|val))[a-z_]{1,20}){0,3})(?:_(?:step|epoch))?(?![a-z_/])(?:\s?\([a-z]{1,12}\))?"
    rf"{BETWEEN}(?<![\w.-])({VALUE})(?!(?!nats\b)[\w.]*[\w%])",
    re.IGNORECASE,
)
# Without one of these a line prints no bits: looking for words is quicker.
BITS = re.compile("bp[bc]|bits", re.IGNORECASE)
BITS_A_BYTE = re.compile(
    r"(?<![a-z0-9])((?:[a-z]{1,20}[ _/.-]{1,3}){0,3})(?:bpb|bits[ _]per[ _]byte)"
    rf"{BETWEEN}(?<![\w.-])({VALUE})(?![\w.]*[\w%])",
    re.IGNORECASE,
)
BITS_A_CHARACTER = re.compile(
    r"(?<![a-z0-9])((?:[a-z]{1,20}[ _/.-]{1,3}){0,3})(?:bpc|bits[ _]per[ _]char(?:acter)?)"
    rf"{BETWEEN}(?<![\w.-])({VALUE})(?![\w.]*[\w%])",
    re.IGNORECASE,
)
# `step 250: train 1.96, val 2.07`: both without the word.
BOTH = re.compile(
    rf"(?<![a-z])train(?:ing)?{BETWEEN}({VALUE})\W{{1,8}}val(?:id(?:ation)?)?{BETWEEN}({VALUE})(?![\w.]*[\w%])",
    re.IGNORECASE,
)
# `step 250 | train 1.962 | 35k tok/s`: a counter and one loss without the word.
TRAIN_ALONE = re.compile(
    rf"(?<![a-z/_])train(?:ing)?{BETWEEN}(\d{{1,3}}\.\d{{2,12}})(?![\w.]*[\w%])(?! ?[a-z])", re.IGNORECASE
)
# A bar with a loss of training has that of validation beside it without the word: `loss=1.45, val=1.62`.
VAL_ALONE = re.compile(
    rf"(?<![a-z/_])val(?:id(?:ation)?)?{BETWEEN}(\d{{1,3}}\.\d{{2,12}})(?![\w.]*[\w%])(?! ?[a-z])",
    re.IGNORECASE,
)
POWERS = frozenset(("ppl", "perplexity"))
# Rounding of either; a mean of perplexities is further off.
POWER_WITHIN, LARGEST_POWER = 0.02, 30.0
# A bar or a summary of an evaluation, whose losses have no word of their own in front.
VALIDATING = re.compile(
    r"(?<![a-z])(?:valid|validating|validation|evaluating|evaluation)(?::? (?!loss)|: \s{0,4}\d{1,3}%)"
    r"|^\W{0,8}(?:test|dev)(?: set)?: ",
    re.IGNORECASE,
)
VALIDATION = frozenset(
    (
        "val",
        "valid",
        "validation",
        "validate",
        "eval",
        "evaluation",
        "test",
        "dev",
        "heldout",
        "holdout",
    )
)
TRAINING = frozenset(("train", "training", "tr"))
# Beside it Hugging Face's `train_loss` is the mean of the whole run.
OF_ALL = "train_runtime"
# Words that make another quantity of it, or the best of several.
OTHER = frozenset(
    (
        "aux",
        "auxiliary",
        "z",
        "kl",
        "best",
        "min",
        "minimum",
        "lowest",
        "initial",
        "target",
        "reg",
        "regularization",
        "balance",
        "balancing",
        "router",
        "contrastive",
        "mtp",
        "distill",
        "distillation",
        "reward",
        "policy",
        "value",
        "entropy",
        "critic",
        "consistency",
        "commitment",
    )
)


@dataclass(slots=True)
class Printed:
    """What one line says; NaN and None where it does not.

    Attributes:
        step: its counter.
        of: what that counter runs to.
        step_of_bar: the counter is a bar's or a batch's, which begins anew in every epoch.
        epoch: its epoch, or how many were made.
        epochs: how many are planned.
        loss: of training.
        val_loss: of validation.
        has_loss: a training loss is printed, be it NaN.
        has_val_loss: likewise of validation.
        val_bpb: of validation, bits a byte; NaN also where it is not printed.
        has_power: a perplexity stands beside.
        of_power: no loss of training is printed but its perplexity.
        in_bits: the perplexity beside the loss is 2 to its power, as fairseq has it.
        of_characters: the losses were printed as bits a character, and no others.
    """

    step: float = math.nan
    of: float = math.nan
    step_of_bar: bool = False
    epoch: float = math.nan
    epochs: float = math.nan
    loss: float = math.nan
    val_loss: float = math.nan
    has_loss: bool = False
    has_val_loss: bool = False
    val_bpb: float = math.nan
    has_power: bool = False
    of_power: bool = False
    in_bits: bool = False
    of_characters: bool = False

    @property
    def evaluates(self) -> bool:
        """Whether the line tells of a validation."""
        return self.has_val_loss or not math.isnan(self.val_bpb)

    @property
    def counts(self) -> bool:
        """Whether the line says where in the run it is."""
        return not (math.isnan(self.step) and math.isnan(self.epoch))


def printed(text: str) -> Printed:
    """What a line says of losses and where in the run."""
    said = Printed()
    _losses(text, said)
    said.val_bpb = _bits_a_byte(text)
    if not (said.has_loss or said.has_val_loss):
        _bits_a_character(text, said)
    epoch = EPOCH.search(text)
    if epoch is not None:
        said.epoch = float(epoch[1])
        said.epochs = float(epoch[2]) if epoch[2] else math.nan
    step = STEP.search(text) or CLOCKED.search(text) or COUNTED.search(text) or CALLS.search(text)
    if step is None:
        rest = text[epoch.end() :] if epoch is not None else text
        # The bar of an evaluation counts its own batches.
        bar = None if VALIDATING.search(text) and not said.has_loss else BAR.search(rest)
        step = BATCH.search(rest) or bar or (PAIR.search(rest) if bar is None else None)
        said.step_of_bar = step is not None
    if step is not None:
        # One of the ways to write a counter has matched, and some say what it runs to.
        done, *of = filter(None, step.groups())
        said.step = counter(done)
        said.of = counter(of[0]) if of else math.nan
    return said


def _bits_a_byte(text: str) -> float:
    if not BITS.search(text):
        return math.nan
    of_validation = VALIDATING.search(text) is not None
    for prefix, number in BITS_A_BYTE.findall(text):
        words = set(re.split(r"[ _/.-]+", prefix.lower()))
        if (words & VALIDATION or of_validation) and not words & (OTHER | TRAINING):
            return _value(number)
    return math.nan


def _bits_a_character(text: str, said: Printed) -> None:
    if not BITS.search(text):
        return
    of_validation = VALIDATING.search(text) is not None
    for prefix, number in BITS_A_CHARACTER.findall(text):
        words = set(re.split(r"[ _/.-]+", prefix.lower()))
        if words & OTHER:
            continue
        value, said.of_characters = _value(number) * math.log(2), True
        if (words & VALIDATION or of_validation) and not words & TRAINING:
            said.val_loss, said.has_val_loss = value, True
        elif not said.has_loss:
            said.loss, said.has_loss = value, True


def counter(text: str) -> float:
    """The whole number that a counter shows: `1,000`, `1_000`, `1k`, `1.005k`."""
    digits = text.replace(",", "").replace("_", "")
    return float(round(1e3 * float(digits[:-1]))) if digits[-1] in "kK" else float(digits)


def _losses(text: str, said: Printed) -> None:
    if OF_ALL in text:
        text = text.replace("train_loss", "mean")
    both = BOTH.search(text)
    if both is not None:
        said.loss, said.val_loss = _value(both[1]), _value(both[2])
        said.has_loss = said.has_val_loss = True
        return
    powers = Printed()
    of_validation = VALIDATING.search(text) is not None
    for prefix, name, suffix, number in NAMED.findall(text):
        words = set(re.split(r"[ _/.-]+", f"{prefix} {suffix}".lower()))
        if words & OTHER:
            continue
        into = powers if name.lower() in POWERS else said
        value = _value(number)
        # `Train/Val Loss` is one of both; what it is of training is said first.
        if (words & VALIDATION or of_validation) and not words & TRAINING:
            if not into.has_val_loss:
                into.val_loss, into.has_val_loss = value, True
        elif not into.has_loss:
            into.loss, into.has_loss = value, True
    alone = None if said.has_loss or said.has_val_loss else TRAIN_ALONE.search(text)
    if alone is not None and (STEP.search(text) or COUNTED.search(text)):
        said.loss, said.has_loss = float(alone[1]), True
    beside = VAL_ALONE.search(text) if said.has_loss and not said.has_val_loss else None
    if beside is not None and not powers.has_val_loss:
        said.val_loss, said.has_val_loss = float(beside[1]), True
    losses_are_named = said.has_val_loss
    said.has_power = powers.has_loss or powers.has_val_loss
    said.in_bits = _is_power(2, said, powers) and not _is_power(math.e, said, powers)
    if not said.has_val_loss and powers.has_val_loss and powers.val_loss >= 1:
        said.val_loss, said.has_val_loss = math.log(powers.val_loss), True
    if not (said.has_loss or losses_are_named) and powers.has_loss and powers.loss >= 1:
        said.loss, said.has_loss, said.of_power = math.log(powers.loss), True, True


def _is_power(base: float, said: Printed, powers: Printed) -> bool:
    """Whether the perplexity beside a loss is the base to its power."""
    for loss, power in ((said.loss, powers.loss), (said.val_loss, powers.val_loss)):
        if 0.1 < loss < LARGEST_POWER and power > 1:
            return bool(abs(base**loss / power - 1) < POWER_WITHIN)
    return False


def _value(text: str) -> float:
    return float(text.replace(",", ""))

"""Where a loss must begin, ln(vocabulary), and whether the logged one is a multiple of the true one."""

import math

import numpy as np

from gptwright.diagnose.reading import SMALLEST_BPE, Reading
from gptwright.facts import Fact, derived, logged

# GPT-2's initialization puts the first loss up to 0.2 above ln(vocabulary), growing with width, and one
# micro-batch scatters by another 0.2.
ABOVE_UNIFORM = 0.6
# Vocabularies in common use, and where beside ln of them fresh weights begin.
USUAL_VOCABULARIES = {50257: "GPT-2", 32000: "Llama", 128_256: "Llama 3", 256: "bytes"}
CLOSE_TO_FRESH = -0.1, 0.2
# A summed loss is a whole multiple of ln(vocabulary); the first value scatters by 2 %.
MULTIPLE_TOLERANCE = 0.04
# Of weights that were trained before, training lies near the first validation or is a sum: of three or more,
# for dropout and a masked prompt alone make it higher by half.
LEAST_SUMMED, NEAR_VALIDATION = 3, 0.2
# Above it any number is within that tolerance of a whole one, which then tells nothing.
LARGEST_TOLD_MULTIPLE = 12
# No run that goes on is worse than guessing by a third.
FAR_ABOVE_UNIFORM = 1.3
# Of the vocabularies in use, where none is named.
LARGEST_VOCABULARY = 262_144
# A first line that averages over the steps of an interval has learned up to a third of the way.
EARLY_STEPS, LEARNED_SHARE = 500, 0.66


def uniform_loss(reading: Reading) -> Fact | None:
    """ln(vocabulary): the loss of guessing every token alike."""
    vocabulary = reading.vocab_size
    if vocabulary is None:
        return None
    formula = f"ln({vocabulary.number:,.0f})"
    return derived("uniform_loss", math.log(vocabulary.number), formula, unit="nats")


def called_fresh(reading: Reading) -> bool:
    """Whether a config or the trainer says that the run starts from fresh weights."""
    if reading.settings.named("init_from") is not None:
        return reading.starts_from_scratch
    return reading.log is not None and reading.log.format.gpt2_shaped


def first_loss(reading: Reading) -> Fact | None:
    """The loss of fresh weights: the first line of a log that begins at the beginning."""
    log = reading.log
    if log is None or not reading.starts_from_scratch or not reading.steps_are_known:
        return None
    for name, table, losses in (
        ("first_val_loss", log.evals, log.evals.val_loss),
        ("first_loss", log.train, log.train.loss),
    ):
        if len(table) and table.step[0] <= 1 and math.isfinite(losses[0]):
            return logged(name, float(losses[0]), int(table.line[0]), unit="nats")
    return None


def first_train_loss(reading: Reading) -> Fact | None:
    """The loss of fresh weights on the first training line of a log that begins at the beginning."""
    train = reading.train
    if (
        train is None
        or not reading.starts_from_scratch
        or train.step[0] > 1
        or not math.isfinite(train.loss[0])
    ):
        return None
    return logged("first_loss", float(train.loss[0]), int(train.line[0]), unit="nats")


def other_unit(reading: Reading) -> str | None:
    """What a first loss is that is right in another unit than nats: `perplexity` or `bits`; else None."""
    first, uniform = first_loss(reading), uniform_loss(reading)
    if first is None or uniform is None or first.number <= uniform.number + ABOVE_UNIFORM:
        return None
    if abs(math.log(first.number) - uniform.number) <= ABOVE_UNIFORM:
        return "perplexity"
    ratio = first.number * math.log(2) / uniform.number
    return "bits" if abs(ratio - 1) <= MULTIPLE_TOLERANCE else None


def _validation_is_above(reading: Reading, uniform: Fact | None) -> bool:
    """Whether validation is or was above guessing too: it is averaged apart, so what is wrong is no sum."""
    evals = reading.evals
    if evals is None or uniform is None:
        return False
    known = evals.val_loss[np.isfinite(evals.val_loss)]
    return bool(len(known) and max(known[0], known[-1]) > FAR_ABOVE_UNIFORM * uniform.number)


def other_vocabulary(reading: Reading) -> str | None:
    """The vocabulary in common use whose fresh loss the first one is, where that is above the run's own."""
    first, uniform = first_loss(reading), uniform_loss(reading)
    if first is None or uniform is None or first.number <= uniform.number + ABOVE_UNIFORM:
        return None
    low, high = CLOSE_TO_FRESH
    return next(
        (
            f"the {rows:,} of {name}"
            for rows, name in USUAL_VOCABULARIES.items()
            if low <= first.number - math.log(rows) <= high
        ),
        None,
    )


def loss_scale(reading: Reading) -> int:
    """By what whole number the logged training loss is too large; 1 where it is not.

    A first loss far above ln(vocabulary) is no loss of a model that guesses. Which multiple it is, is told by
    the accumulation, else by validation beside it, else by the loss of fresh weights itself. A first line
    that is a mean over the steps before it is a little below the multiple. Where the vocabulary is not known,
    no loss of fresh weights is above that of the largest in use, and validation or the accumulation tells
    the multiple.
    """
    train, uniform = reading.train, uniform_loss(reading)
    if train is None or train.segment[0] != 0:
        return 1
    if not reading.starts_from_scratch:
        return _summed_over_the_accumulation(reading)
    first = float(train.loss[0])
    highest = uniform.number if uniform is not None else math.log(LARGEST_VOCABULARY)
    if not math.isfinite(first) or train.step[0] > EARLY_STEPS or first < 1.5 * highest:
        return 1
    if other_unit(reading) == "perplexity" or _validation_is_above(reading, uniform):
        return 1
    accumulation = reading.settings.integer("gradient_accumulation_steps")
    told, lowest = [_against_validation(reading), accumulation], math.log(SMALLEST_BPE)
    if uniform is not None:
        lowest = uniform.number
        told = [accumulation, _against_validation(reading), _by_itself(reading, first / uniform.number)]
    for multiple in told:
        if multiple is None or multiple < 2:
            continue
        fresh = train.step[0] <= 1 and reading.steps_are_known
        least = 1 - MULTIPLE_TOLERANCE if fresh else LEARNED_SHARE
        if least * lowest <= first / multiple <= (1 + MULTIPLE_TOLERANCE) * highest:
            return multiple
    return 1


def _summed_over_the_accumulation(reading: Reading) -> int:
    """The accumulation, where training is so many times the first validation of a model that was not fresh; 1
    if not. Later training may have memorized; a fresh model's loss is told by guessing, this one's by nothing
    else.
    """
    train, evals = reading.train, reading.evals
    accumulation = reading.settings.integer("gradient_accumulation_steps") or 1
    if train is None or evals is None or accumulation < LEAST_SUMMED:
        return 1
    known = np.flatnonzero(np.isfinite(evals.val_loss))
    if not len(known):
        return 1
    near = int(np.argmin(np.abs(train.step - evals.step[known[0]])))
    ratio = float(train.loss[near] / evals.val_loss[known[0]])
    return accumulation if abs(ratio / accumulation - 1) < NEAR_VALIDATION else 1


def _by_itself(reading: Reading, ratio: float) -> int | None:
    """The multiple that a first loss has, where a whole number tells something: a small one, or that of all
    micro-batches of all devices.
    """
    multiple = round(ratio)
    accumulation = reading.settings.integer("gradient_accumulation_steps") or 1
    devices = reading.machine.count
    of_the_run = multiple in (devices, accumulation * devices)
    return multiple if multiple <= LARGEST_TOLD_MULTIPLE or of_the_run else None


def _against_validation(reading: Reading) -> int | None:
    """How many times validation the training loss is at the last evaluation, if that is a whole number."""
    train, evals = reading.train, reading.evals
    if train is None or evals is None or not np.isfinite(evals.val_loss).any():
        return None
    row = int(np.flatnonzero(np.isfinite(evals.val_loss))[-1])
    near = int(np.argmin(np.abs(train.step - evals.step[row])))
    ratio = float(train.loss[near] / evals.val_loss[row])
    return round(ratio) if math.isfinite(ratio) and abs(ratio / max(1, round(ratio)) - 1) < 0.1 else None

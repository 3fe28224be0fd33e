"""Steps of a log that prints none, from the passes that it counts and the steps of a pass.

Hugging Face's dicts say `'epoch': 1.24` and no step; the bar that says it is not in every log. How many steps
a pass has follows from what the trainer prints first (steps and passes of the run, examples and batch), from
what it prints last (its seconds × its steps a second), or from the training tokens over those of a step. A
printed epoch is rounded, so what is told for certain is mostly not the single step but the interval: dicts
come every so many steps, which is a whole number. Where nothing makes it the only one, no step is claimed.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from gptwright.diagnose.settings import Settings
from gptwright.facts import Fact
from gptwright.record.arrays import Floats
from gptwright.record.evidence import FROM_PASSES, IN_EPOCHS, NUMBERED, LogEvidence

# The Trainer rounds passes to two decimals and steps a second to three; newer ones print four digits of both.
DECIMALS_OF_PASSES, DECIMALS_OF_RATE, DIGITS = 2, 3, 4
# A schedule that ends, ends near nothing; training that was stopped early left it higher.
ENDED = 0.1


@dataclass(frozen=True, slots=True)
class Pass:
    """How many steps a pass over the data has.

    Attributes:
        low: at least.
        high: at most.
    """

    low: float
    high: float

    @property
    def whole(self) -> int | None:
        """The only whole number of steps that it can be, if there is one."""
        return round(self.high) if math.ceil(self.low) == math.floor(self.high) else None


def with_steps(
    log: LogEvidence | None, settings: Settings, tokens_per_step: Fact | None
) -> LogEvidence | None:
    """A log whose rows have their steps, where it prints passes alone and those tell them; else as it is."""
    if log is None or not (log.hazards.get(NUMBERED) or log.hazards.get(IN_EPOCHS)):
        return log
    passes = np.concatenate([log.train.epoch, log.evals.epoch])
    counted = (
        len(log.train) > 0 and bool(np.isfinite(passes).all()) and bool((np.diff(log.train.epoch) > 0).all())
    )
    if not counted or not (log.format.counts_passes or (passes % 1).any()):
        return log
    each = (
        _of_the_head(settings, log) or _of_the_end(settings, log) or _of_the_data(settings, tokens_per_step)
    )
    error = _rounding(passes)
    train = _regular(log.train.epoch, error[: len(log.train)], each) if each is not None else None
    if each is None or train is None:
        return log
    evals = _among(log, train, error, each)
    if evals is None:
        return log
    hazards = {name: count for name, count in log.hazards.items() if name not in (NUMBERED, IN_EPOCHS)}
    return replace(
        log,
        train=replace(log.train, step=train.astype(np.int64)),
        evals=replace(log.evals, step=evals.astype(np.int64)),
        hazards=hazards | {FROM_PASSES: len(passes)},
    )


def _of_the_head(settings: Settings, log: LogEvidence) -> Pass | None:
    """By the planned steps and passes; where steps were asked for, the passes are rounded up, and lie."""
    steps, passes = settings.logged.get("planned_steps"), settings.logged.get("planned_epochs")
    examples, batch = settings.logged.get("examples"), settings.logged.get("global_batch")
    if steps is None or passes is None:
        return None
    each = steps.number / passes.number
    if examples is not None and batch is not None:
        agrees = abs(each - examples.number / batch.number) <= 1
    else:
        agrees = abs(log.train.epoch[-1] / passes.number - 1) <= 1 / len(log.train)
    return Pass(each, each) if agrees and each == int(each) else None


def _of_the_end(settings: Settings, log: LogEvidence) -> Pass | None:
    """By the steps of the whole run over its passes: a bar that came to its end shows them, and the Trainer's
    last line gives its seconds and its planned steps a second, which were made where the rate came down.
    """
    # A rate that is not printed is NaN, and no larger or smaller than any.
    passes, made = settings.logged.get("epochs"), settings.logged.get("steps_made")
    seconds, rate = settings.logged.get("training_seconds"), settings.logged.get("steps_per_second")
    rates = log.train.learning_rate
    if passes is None:
        return None
    if made is not None:
        low = high = made.number
    elif seconds is not None and rate is not None and rates[-1] <= ENDED * np.max(rates):
        error = float(_rounding(np.array([rate.number]), DECIMALS_OF_RATE)[0])
        low, high = seconds.number * (rate.number - error), seconds.number * (rate.number + error)
    else:
        return None
    error = float(_rounding(np.array([passes.number]))[0]) if passes.number % 1 else 0.0
    return Pass(low / (passes.number + error), high / (passes.number - error))


def _of_the_data(settings: Settings, tokens_per_step: Fact | None) -> Pass | None:
    """By the training tokens over those of a step; what is left over may be a step or none."""
    tokens = settings.get("train_tokens")
    if tokens is None or tokens_per_step is None:
        return None
    each = tokens.number / tokens_per_step.number
    return Pass(math.floor(each), math.ceil(each)) if each >= 1 else None


def _rounding(printed: Floats, decimals: int = DECIMALS_OF_PASSES) -> Floats:
    """By how much each printed number may be off.

    Args:
        printed: the numbers.
        decimals: of all of them at least, as zeros at the end are not printed.
    """
    by_decimals = 0.5 * 10.0 ** -max(decimals, *(len(repr(float(n)).partition(".")[2]) for n in printed))
    with np.errstate(divide="ignore"):
        by_digits = 0.5 * 10.0 ** (np.floor(np.log10(printed)) - DIGITS + 1)
    return np.maximum(by_decimals, by_digits)


def _regular(passes: Floats, error: Floats, each: Pass) -> Floats | None:
    """The steps of training lines that come every so many steps; None where the interval is not certain."""
    low, high = (passes - error) * each.low, (passes + error) * each.high
    single = _only_whole(low, high)
    if single is not None or len(passes) < 2:
        return single
    if not (passes % 1).any():
        return None if each.whole is None else passes * each.whole
    intervals = len(passes) - 1
    least = math.ceil((passes[-1] - error[-1] - passes[0] - error[0]) * each.low / intervals)
    most = math.floor((passes[-1] + error[-1] - passes[0] + error[0]) * each.high / intervals)
    if least != most or least < 1:
        return None
    first = round(passes[0] * (each.low + each.high) / 2 / least)
    steps = least * np.arange(first, first + len(passes), dtype=np.float64)
    return steps if first > 0 and ((steps >= low) & (steps <= high)).all() else None


def _among(log: LogEvidence, train: Floats, error: Floats, each: Pass) -> Floats | None:
    """The steps of evaluations: the only ones that can be, those of whole passes, or of the line before with
    the same passes; None where one of them is not certain.
    """
    passes = log.evals.epoch
    shown, off = log.train.epoch, error[: len(train)]
    late = shown > off
    narrowed = Pass(
        max(each.low, float(np.max(train / (shown + off)))),
        min(each.high, float(np.min(train[late] / (shown - off)[late], initial=each.high))),
    )
    error = error[len(train) :]
    low, high = (passes - error) * narrowed.low, (passes + error) * narrowed.high
    single, lowest = np.ceil(low), np.floor(high)
    at = np.searchsorted(log.moment(log.train.line), log.moment(log.evals.line)) - 1
    beside = (at >= 0) & (log.train.epoch[at] == passes)
    steps = np.where(single == lowest, single, np.nan)
    if narrowed.whole is not None:
        steps = np.where(passes % 1 == 0, passes * narrowed.whole, steps)
    steps = np.where(np.isnan(steps) & beside, train[at], steps)
    return steps if np.isfinite(steps).all() else None


def _only_whole(low: Floats, high: Floats) -> Floats | None:
    """The whole numbers between bounds, where there is one each."""
    first = np.ceil(low)
    return first if (first == np.floor(high)).all() else None

"""How sure a run's evaluations are, and whether validation has turned."""

import re

import numpy as np

from gptwright.arithmetic.evaluation import EvaluationError, evaluation_error
from gptwright.arithmetic.trend import OverfitPoint, Period, Rise, find_rise, overfit_point, periodicity
from gptwright.diagnose.reading import Reading, once
from gptwright.diagnose.scale import loss_scale
from gptwright.diagnose.series import Series, eval_train_loss, train_loss, val_curve
from gptwright.record.evidence import TrainLoss

# A rise is a matter of levels, each the median of several lines.
LEAST_LINES_FOR_RISE = 20
# Two swings need so many evaluations to be told from noise.
FEWEST_FOR_A_PERIOD = 16
# Losses are printed to three or four places, and a straight slope so rounded has a period of its own.
SMALLEST_SWING = 0.002
# Words for a split that is one piece of text.
CONTIGUOUS = re.compile(
    r"contiguous|one stretch|cut once|last (?:tenth|part|10)|single (?:file|stretch)", re.IGNORECASE
)


def error_by_design(reading: Reading) -> EvaluationError | None:
    """The standard error that the evaluation's design gives it, from eval_iters, batch and context."""
    settings = reading.settings
    batches, batch, context = (settings.integer(n) for n in ("eval_iters", "batch_size", "block_size"))
    vocabulary = reading.vocab_size
    if batches is None or batch is None or context is None or vocabulary is None:
        return None
    split = settings.integer("val_tokens")
    return evaluation_error(
        batches=batches,
        batch_size=batch,
        block_size=context,
        vocab_size=int(vocabulary.number),
        split_tokens=split,
        contiguous=bool(CONTIGUOUS.search(settings.word("note") or "")),
    )


def printed_error(reading: Reading) -> float | None:
    """The median standard error of validation where the log prints it."""
    evals = reading.evals
    if evals is None or not np.isfinite(evals.val_standard_error).any():
        return None
    return float(np.nanmedian(evals.val_standard_error))


def standard_error(reading: Reading) -> float | None:
    """One standard error of a validation loss around its split's mean: as printed, else by the design."""
    printed = printed_error(reading)
    if printed is not None:
        return printed
    design = error_by_design(reading)
    return design.of_mean if design is not None else _error_of_whole_split(reading)


def _error_of_whole_split(reading: Reading) -> float | None:
    """0 where a trainer without eval_iters evaluates the same whole split every time: nothing is drawn."""
    log = reading.log
    if log is None or "eval_iters" in log.format.defaults or reading.settings.get("eval_iters") is not None:
        return None
    return 0.0 if reading.settings.get("val_tokens") is not None else None


def training_loss(reading: Reading) -> Series:
    """The training loss beside validation: the evaluated one where it is logged and not a sum."""
    evaluated = eval_train_loss(reading)
    return evaluated if len(evaluated) and loss_scale(reading) == 1 else train_loss(reading)


def correlation_of_lines(reading: Reading) -> float:
    """How alike neighbouring lines are: 0.9 where the trainer logs a running average that keeps as much."""
    log = reading.log
    return 0.9 if log is not None and log.format.train_loss is TrainLoss.SMOOTHED else 0.0


@once
def training_rise(reading: Reading) -> Rise | None:
    """Whether the training loss ended above the lowest level that it had held; None if not."""
    loss = train_loss(reading)
    if len(loss) < LEAST_LINES_FOR_RISE:
        return None
    return find_rise(loss.step, loss.value, correlation=correlation_of_lines(reading))


@once
def turning_point(reading: Reading) -> OverfitPoint | None:
    """The best evaluation, if validation has risen from it beyond the noise; None if not."""
    val, train = val_curve(reading), training_loss(reading)
    if len(val) < 4 or len(train) < 4:
        return None
    error = standard_error(reading) if val.name == "val_loss" else None
    point = overfit_point(val.step, train.value_at(val.step), val.value, error)
    return point if point is not None and point.exceeds else None


def swing_of(val: Series) -> Period | None:
    """A swing of validation that moves what is read from it; what rounding makes of a slope is none."""
    period = periodicity(val.step, val.value) if len(val) >= FEWEST_FOR_A_PERIOD else None
    return period if period is not None and period.amplitude >= SMALLEST_SWING else None

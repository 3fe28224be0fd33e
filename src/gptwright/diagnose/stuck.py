"""A loss that stays where a model stays that learns no context."""

import math
from dataclasses import dataclass

import numpy as np

from gptwright.diagnose.evaluation import training_rise
from gptwright.diagnose.reading import SMALLEST_BPE, Reading
from gptwright.diagnose.scale import ABOVE_UNIFORM, loss_scale, other_vocabulary, uniform_loss
from gptwright.diagnose.series import Series, train_loss, val_loss
from gptwright.facts import Fact

# The entropy of GPT-2 tokens taken one by one is 7.3 to 7.8 nats, 0.67 to 0.72 of ln(vocabulary). A loss
# that stays above two thirds has learned frequencies at most. 27 letters have 2.8 nats and 65 characters 3.3,
# and with the one before them 2.3 to 2.5: whatever the vocabulary, below 2.7 some context was learned.
UNIGRAM_SHARE, FEWEST_NATS = 0.66, 2.7
# What counts as no progress: less than this over the later half. A run that learns context falls by a nat
# in a few hundred steps from there.
NO_PROGRESS = 0.1
# Half of ln(vocabulary), 5.4 nats for GPT-2's, is where a model that learns context is after some hundred
# steps. With fewer tokens than compute-optimal for its size none is full there.
FLAT_SHARE, WELL_FED = 0.5, 20
# Medians of a third of the lines scatter by 0.1 where a line is one micro-batch of eight sequences.
HARDLY_ANY = 0.25
# The frequencies of tokens alone bring nats within some hundred updates; a model that is this near to
# ln(vocabulary) had none that did anything.
STILL_GUESSING = 0.3
# Where the median of so many lines was lower than that by this much, context had been learned.
LINES_OF_A_LEVEL, CLEARLY_BELOW = 8, 0.3


@dataclass(frozen=True, slots=True)
class StuckStretch:
    """The later half of a run that learned nothing in it.

    Attributes:
        lines: its training losses.
        start: the median of their first third.
        end: the median of their last third.
        level: of the frequencies of single tokens, at least.
        uniform: ln(vocabulary).
        guesses: not even the frequencies of tokens were learned.
    """

    lines: Series
    start: float
    end: float
    level: float
    uniform: Fact
    guesses: bool


def flat_stretch(reading: Reading) -> StuckStretch | None:
    """The later three quarters of a run over a BPE's tokens, if the loss gains nothing in them, at a level
    where no model of that size stays that is still short of tokens; None if not.
    """
    loss, uniform = train_loss(reading), uniform_loss(reading)
    fed = reading.progress.tokens_per_parameter
    if uniform is None or uniform.number < math.log(SMALLEST_BPE) or fed is None or fed.number > WELL_FED:
        return None
    late = loss.part(loss.step >= loss.step[0] + (loss.step[-1] - loss.step[0]) / 4) if len(loss) else loss
    if len(late) < 20 or loss.step[-1] < 500 or loss_scale(reading) > 1:
        return None
    third = len(late) // 3
    start, end = float(np.median(late.value[:third])), float(np.median(late.value[-third:]))
    if not FLAT_SHARE * uniform.number <= end <= uniform.number or abs(start - end) > HARDLY_ANY:
        return None
    return StuckStretch(late, start, end, _unigram_level(uniform), uniform, guesses=False)


def stuck_stretch(reading: Reading) -> StuckStretch | None:
    """The later half of the run, if the loss stays above the level of single tokens there; None if not."""
    loss, uniform = train_loss(reading), uniform_loss(reading)
    if uniform is None or len(loss) < 20 or loss_scale(reading) > 1:
        return None
    warmup = reading.settings.number("warmup_iters") or 0.0
    half = loss.part(loss.step >= (loss.step[0] + loss.step[-1]) / 2)
    if loss.step[-1] < 500 or (loss.step[-1] < 2 * warmup and warmup > 0.5 * loss.step[-1]) or len(half) < 8:
        return None
    third = max(2, len(half) // 3)
    start, end = float(np.median(half.value[:third])), float(np.median(half.value[-third:]))
    above, below = uniform.number + ABOVE_UNIFORM, _unigram_level(uniform)
    if not below <= end <= above or start - end > NO_PROGRESS:
        return None
    val = val_loss(reading)
    if (len(val) and val.value[-1] < below) or _was_below(loss, below):
        return None
    # Of another vocabulary than is said ln is another too.
    if other_vocabulary(reading) is not None:
        return None
    return StuckStretch(half, start, end, below, uniform, end >= uniform.number - STILL_GUESSING)


def _unigram_level(uniform: Fact) -> float:
    return max(UNIGRAM_SHARE * uniform.number, FEWEST_NATS)


def learns_context(reading: Reading) -> bool:
    """Whether the training loss has left the level at which too high a rate holds it, and not come back."""
    loss, uniform = train_loss(reading), uniform_loss(reading)
    if uniform is None or len(loss) < LINES_OF_A_LEVEL or loss_scale(reading) > 1:
        return False
    level = float(np.median(loss.value[-LINES_OF_A_LEVEL:]))
    return level < FLAT_SHARE * uniform.number - CLEARLY_BELOW and training_rise(reading) is None


def _was_below(loss: Series, level: float) -> bool:
    """Whether a run had learned more than that before it lost it again, which is divergence."""
    medians = np.median(np.lib.stride_tricks.sliding_window_view(loss.value, LINES_OF_A_LEVEL), axis=1)
    return bool(medians.min() < level - CLEARLY_BELOW)

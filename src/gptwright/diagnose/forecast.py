"""Where a run is heading, and what would pay: more steps, a larger model, more text, a decayed rate.

The continuation is that of the run's own curve, with the interval of the fit; what other changes would bring
is a difference of the scaling laws, with their spread. Neither is said where the curve does not carry it:
broken, stuck or overfitted runs, logs of less than 30 % of the plan or of its late part alone, curves of few
points, training losses over text that is known by heart. A curve that is mostly warm-up falls otherwise than
it will: that it falls is said, and not by how much.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from gptwright.arithmetic import scaling
from gptwright.arithmetic.trend import CurveFit, Forecast, fit_curve, forecast, slope
from gptwright.config.schema import TrainConfig
from gptwright.diagnose.evaluation import training_rise, turning_point
from gptwright.diagnose.law import laws_hold
from gptwright.diagnose.reading import Reading, once
from gptwright.diagnose.scale import ABOVE_UNIFORM, LARGEST_VOCABULARY, loss_scale
from gptwright.diagnose.series import Series, train_loss, val_loss
from gptwright.diagnose.stuck import stuck_stretch
from gptwright.facts import Fact
from gptwright.optim.schedule import learning_rate
from gptwright.record.arrays import Floats, Integers

# What the decay of the learning rate takes off at GPT-2 size (docs/scaling.md).
DECAY_GAIN = (0.08, 0.15)
# A curve that begins later than this share of the run shows a stretch too short to be continued.
LATEST_START = 0.5
# Seeds differ by as much.
NO_GAIN = 0.005
SCHEDULE = ("learning_rate", "min_lr", "warmup_iters", "lr_decay_iters", "max_iters")


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """Something to do next, with what the run's own curve or the laws promise for it.

    Attributes:
        text: what to do.
        gain: nats, low and high.
        hours: what it costs at the speed of this run; None if that is not known.
    """

    text: str
    gain: tuple[float, float]
    hours: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunForecast:
    """What a run's own curve says about its future.

    Attributes:
        curve: the losses that were fitted.
        falling: whether the loss falls significantly at the end.
        gain_from_half_more: nats that half as many steps again would bring; None if that cannot be told.
        planned_end: loss at the planned end with its 90 % interval; None if the run is finished or too young.
        options: what would pay, the most first.
    """

    curve: Series
    falling: bool
    gain_from_half_more: float | None
    planned_end: Forecast | None
    options: tuple[Option, ...]

    @property
    def evidence(self) -> tuple[Fact, ...]:
        """The ends of the later third of the curve."""
        rows = len(self.curve)
        return self.curve.fact(2 * rows // 3), self.curve.fact(rows - 1)


@once
def forecast_run(reading: Reading) -> RunForecast | None:
    """The forecast of a run; None where its curve carries none."""
    curve, last = _curve(reading), reading.progress.last_step
    if curve is None or last is None or turning_point(reading) is not None or _broken(reading, curve):
        return None
    fractions = lr_fractions(reading, curve.step)
    fit = fit_curve(curve.step, curve.value, lr_fraction=fractions)
    if fit is None:
        return None
    at_end = float(fractions[-1]) if fractions is not None else None
    here = forecast(fit, fit.last_tokens, lr_fraction=at_end)
    if here is None:
        return None
    later = curve.part(curve.step >= curve.step[0] + 2 * (curve.step[-1] - curve.step[0]) / 3)
    line = slope(later.step, later.value)
    more = forecast(fit, 1.5 * fit.last_tokens, lr_fraction=at_end)
    gain = _gain(reading, here.likely - more.likely, at_end) if more is not None else None
    return RunForecast(
        curve=curve,
        falling=line is not None and line.high < 0,
        gain_from_half_more=gain,
        planned_end=_at_planned_end(reading, fit, fractions is not None),
        options=_options(reading, gain, at_end),
    )


def is_warming_up(reading: Reading) -> bool:
    """Whether most of a run's steps so far belong to the warm-up of its learning rate."""
    warm_up, last = reading.settings.number("warmup_iters"), reading.progress.last_step
    return warm_up is not None and last is not None and last.number < 2 * warm_up


def band_of(gain: float) -> tuple[float, float]:
    """Low and high of what a curve's continuation promises; that half of it is kept is a judgement."""
    return gain / 2, gain


def _gain(reading: Reading, by_curve: float, lr_fraction: float | None) -> float:
    """What half as many steps again bring: by the run's own curve, and no more than the laws allow.

    While the learning rate falls, its decay looks like progress, which a longer run does not repeat.
    """
    parameters, tokens = reading.sizes.parameters, reading.progress.tokens_seen
    decayed = lr_fraction is None or lr_fraction < 0.5
    if decayed and parameters is not None and tokens is not None and tokens.number > parameters.number:
        law = scaling.gain_band(parameters.number, tokens.number, 1.5 * tokens.number)
        return min(by_curve, law.high)
    return by_curve


def _broken(reading: Reading, curve: Series) -> bool:
    """Whether the loss is no measure of progress: not finite, rising, stuck, a sum, too short a part."""
    if reading.train is not None and reading.train.loss_is_bad.any():
        return True
    if stuck_stretch(reading) is not None or training_rise(reading) is not None:
        return True
    # Above guessing over any vocabulary, or below 0, a value is no loss, so no gain in nats follows from it.
    is_a_loss = 0 <= curve.value.min() <= math.log(LARGEST_VOCABULARY) + ABOVE_UNIFORM
    if not is_a_loss or curve.step[0] > LATEST_START * curve.step[-1]:
        return True
    return curve.name == "train_loss" and _lines_mislead(reading)


def _lines_mislead(reading: Reading) -> bool:
    """Whether training lines fall without the model getting better, or are no losses of one token."""
    val, epochs = val_loss(reading), reading.progress.epochs
    # Training loss falls with every pass over the same text, whatever is learned.
    if epochs is not None and epochs.number > scaling.FRESH_PASSES:
        return True
    # A handful of evaluations is no curve, but says so where the last is not the best of them.
    if len(val) > 1 and val.best != len(val) - 1:
        return True
    return not len(val) and loss_scale(reading) > 1


def _curve(reading: Reading) -> Series | None:
    """Validation where there is enough of it, else the training lines; only what lies after the start."""
    for series in (val_loss(reading), train_loss(reading)):
        usable = series.after(0)
        if len(usable) >= 10:
            return usable
    return None


def lr_fractions(reading: Reading, steps: Integers) -> Floats | None:
    """The learning rate at steps as a share of its peak, as printed or as the written schedule gives it."""
    train, peak = reading.train, peak_rate(reading)
    if train is not None and peak is not None:
        known = np.isfinite(train.learning_rate)
        order = np.argsort(train.step[known], kind="stable")
        shares: Floats = np.interp(steps, train.step[known][order], train.learning_rate[known][order] / peak)
        return shares
    config = schedule_config(reading)
    if config is None:
        return None
    return np.array([learning_rate(config, int(step)) for step in steps]) / config.learning_rate


def peak_rate(reading: Reading) -> float | None:
    """The highest rate of the schedule that the log prints; None where it prints none or only a late part.

    A trainer that prints multiples of the rate has its peak at 1. The log of a run's tail shows low rates
    alone, and only what is configured says what they are a part of.
    """
    train, log = reading.train, reading.log
    if train is None or log is None or np.isfinite(train.learning_rate).sum() < 3:
        return None
    highest = float(np.nanmax(train.learning_rate))
    if highest <= 0:
        return None
    if log.format.prints_rate_multiple:
        return max(1.0, highest)
    configured = reading.settings.named("learning_rate")
    if configured is not None:
        return max(highest, configured.number)
    return highest if train.step[0] <= LATEST_START * train.step[-1] else None


def schedule_config(reading: Reading) -> TrainConfig | None:
    """The written schedule as a config; None where a part of it is not known."""
    settings = reading.settings
    values: dict[str, Any] = {name: settings.number(name) for name in SCHEDULE}
    if any(value is None for value in values.values()) or not values["learning_rate"]:
        return None
    values |= {
        "decay_lr": settings.flag("decay_lr") is not False,
        "lr_schedule": settings.word("lr_schedule") or "cosine",
        "cooldown_fraction": settings.number("cooldown_fraction") or 0.2,
    }
    return TrainConfig(**values)


def _at_planned_end(reading: Reading, fit: CurveFit, lr_known: bool) -> Forecast | None:
    planned = reading.progress.planned_steps
    # The last line lies up to a log interval before the end.
    if planned is None or planned.number <= 1.1 * fit.last_tokens:
        return None
    fractions = lr_fractions(reading, np.array([int(planned.number)])) if lr_known else None
    config = schedule_config(reading)
    if fractions is not None and config is not None:
        # Printed rates end with the log; the planned end's rate is the schedule's.
        fractions = np.array([learning_rate(config, int(planned.number)) / config.learning_rate])
    return forecast(fit, planned.number, lr_fraction=float(fractions[0]) if fractions is not None else None)


def _options(
    reading: Reading, gain_from_half_more: float | None, lr_fraction: float | None
) -> tuple[Option, ...]:
    """What would pay, with nats and hours, the most first; each only where it can be known."""
    options = []
    parameters, tokens = reading.sizes.parameters, reading.progress.tokens_seen
    hours = None
    if reading.speed.step_seconds is not None and reading.progress.last_step is not None:
        hours = reading.speed.step_seconds.number * reading.progress.last_step.number / 3600
    if gain_from_half_more is not None and gain_from_half_more > NO_GAIN and not is_warming_up(reading):
        options.append(
            Option(
                text="half as many steps again",
                gain=band_of(gain_from_half_more),
                hours=hours / 2 if hours is not None else None,
            )
        )
    lawful = laws_hold(reading)
    if lr_fraction is not None and lr_fraction > 0.5 and lawful:
        options.append(Option(text="letting the learning rate decay to its end", gain=DECAY_GAIN, hours=None))
    epochs = reading.progress.epochs
    fresh = epochs is None or epochs.number <= scaling.FRESH_PASSES
    past_the_start = parameters is not None and tokens is not None and tokens.number > parameters.number
    if parameters is not None and tokens is not None and fresh and past_the_start and lawful:
        band = scaling.size_gain_band(tokens.number, (parameters.number, 2 * parameters.number))
        time = 2 * hours if hours is not None else None
        options.append(
            Option(text="twice the parameters for the same tokens", gain=(band.low, band.high), hours=time)
        )
    if epochs is not None and not fresh and parameters is not None and tokens is not None and lawful:
        worth = scaling.effective_tokens(unique=tokens.number / epochs.number, total=tokens.number)
        band = scaling.gain_band(parameters.number, worth, tokens.number)
        options.append(Option(text="as many tokens of fresh text", gain=(band.low, band.high), hours=hours))
    return tuple(sorted(options, key=lambda option: -sum(option.gain)))

"""All charts of one run, and what a step of it is worth in tokens, hours and FLOPs.

Everything is drawn from the evidence and the reading; the loss is in `curves`. Long series are thinned
without losing a spike. Speed and MFU leave out lines whose time holds an evaluation or a compilation.
"""

import numpy as np

from gptwright import units
from gptwright.diagnose.forecast import RunForecast
from gptwright.diagnose.reading import Reading
from gptwright.diagnose.series import one_a_step
from gptwright.diagnose.timing import clean_lines, line_seconds
from gptwright.facts import Fact
from gptwright.record.arrays import Floats, Integers
from gptwright.report.curves import bits_figure, lines_of, loss_figure
from gptwright.report.figures import Axis, Curve, Figure, Shape
from gptwright.report.thinning import thin, trend_of

SECONDS_AN_HOUR = 3600.0


def axes_of(reading: Reading) -> tuple[Axis, ...]:
    """What a step of the run is worth, as far as that is known."""
    axes = [Axis("steps", 1.0, "as the trainer counts")]
    speed, flops = reading.speed, reading.sizes.flops_per_token
    if len(reading.progress.batches) > 1 or reading.progress.other_work is not None:
        # A step was worth other amounts before a resume.
        return tuple(axes)
    if speed.tokens_per_step is not None:
        tokens = speed.tokens_per_step
        axes.append(Axis("tokens", tokens.number, f"{tokens.text} tokens a step: {tokens.reason}"))
    if speed.step_seconds is not None:
        seconds = speed.step_seconds
        origin = f"{seconds.text} a step, evaluations left out: {seconds.reason}"
        axes.append(Axis("hours", seconds.number / SECONDS_AN_HOUR, origin))
    if speed.tokens_per_step is not None and flops is not None:
        origin = f"{flops.text} a token ({flops.reason}) × {speed.tokens_per_step.text} tokens a step"
        axes.append(Axis("flops", flops.number * speed.tokens_per_step.number, origin))
    return tuple(axes)


def figures_of(reading: Reading, forecast: RunForecast | None) -> tuple[Figure, ...]:
    """Every chart that the run's record carries, the loss first."""
    made = (
        loss_figure(reading, forecast),
        bits_figure(reading),
        _plain(reading, "learning-rate", "Learning rate", axis="learning rate", column="learning_rate"),
        _plain(
            reading, "grad-norm", "Gradient norm", axis="norm before clipping", column="grad_norm", noisy=True
        ),
        speed_figure(reading),
        mfu_figure(reading),
    )
    return tuple(figure for figure in made if figure is not None)


def speed_figure(reading: Reading) -> Figure | None:
    """Tokens a second of every line that times a step and nothing else."""
    found = clean_rates(reading)
    median = reading.speed.tokens_per_second
    if found is None or median is None:
        return None
    step, rate = found
    return _timed(
        "tokens-per-second",
        title="Speed, evaluations taken out",
        unit="tokens/s",
        axis="tokens/s",
        thinned=thin(step, rate),
        median=median,
        origin="tokens a step / the line's time; lines with an evaluation or compilation are left out",
    )


def mfu_figure(reading: Reading) -> Figure | None:
    """The share of this device's own peak, from the same lines as the speed."""
    found = clean_rates(reading)
    rate, mfu = reading.speed.tokens_per_second, reading.mfu
    if found is None or rate is None or mfu is None:
        return None
    step, rates = found
    # A line's share is to the run's as its rate is to the run's.
    return _timed(
        "mfu",
        title="MFU against this device's own peak",
        unit="fraction",
        axis="MFU",
        thinned=thin(step, rates * (mfu.number / rate.number)),
        median=mfu,
        origin="FLOPs a token × tokens a second of the line / the device's peak",
    )


def clean_rates(reading: Reading) -> tuple[Integers, Floats] | None:
    """Tokens a second on every line that times a step and nothing else; None where that is not known."""
    log, per_step = reading.log, reading.speed.tokens_per_step
    if log is None or per_step is None:
        return None
    seconds = line_seconds(log, per_step)
    clean = np.flatnonzero(clean_lines(log, seconds))
    rows = clean[one_a_step(log.train.step[clean])]
    return (log.train.step[rows], per_step.number / seconds[rows]) if len(rows) else None


def _timed(
    name: str,
    *,
    title: str,
    unit: str,
    axis: str,
    thinned: tuple[Integers, Floats],
    median: Fact,
    origin: str,
) -> Figure:
    step, value = thinned
    ends = np.array([step[0], step[-1]])
    each = Curve(label="every line", shape=Shape.LINE, step=step, value=value, origin=origin, style="faint")
    middle = Curve(
        label=f"of all lines: {median.text}",
        shape=Shape.LINE,
        step=ends,
        value=np.full(2, median.number),
        origin=median.reason,
    )
    low, high = (units.text(float(end), unit) for end in (value.min(), value.max()))
    return Figure(
        id=name,
        title=title,
        unit=unit,
        axis_label=axis,
        curves=(each, middle),
        summary=f"{median.text} from step {step[0]:,} to {step[-1]:,} ({median.reason});"
        f" single lines from {low} to {high}.",
    )


def column_of(reading: Reading, column: str) -> tuple[Integers, Floats] | None:
    """A printed column of the training lines by step, where lines have it; None where none does."""
    train = reading.train
    if train is None:
        return None
    value: Floats = getattr(train, column)
    known = np.flatnonzero(np.isfinite(value))
    rows = known[one_a_step(train.step[known])]
    return (train.step[rows], value[rows]) if len(rows) else None


def _plain(
    reading: Reading, name: str, title: str, *, axis: str, column: str, noisy: bool = False
) -> Figure | None:
    """A printed column as it is; a noisy one of a long log with its trend in front."""
    found, train = column_of(reading, column), reading.train
    if found is None or train is None:
        return None
    step, value = found
    at, thinned = thin(step, value)
    origin = f"printed on {len(step):,} of {lines_of(train.line)}"
    trend = trend_of(step, value) if len(at) < len(step) and noisy else None
    curves = [
        Curve(
            label=title.lower() if trend is None else f"{title.lower()}, every line",
            shape=Shape.LINE,
            step=at,
            value=thinned,
            origin=origin,
            style="plain" if trend is None else "faint",
        )
    ]
    if trend is not None:
        how = f"median of {trend.rows} lines each"
        curves.append(Curve(label="trend", shape=Shape.LINE, step=trend.step, value=trend.middle, origin=how))
    summary = (
        f"From {value[0]:.3g} at step {step[0]:,} to {value[-1]:.3g} at step {step[-1]:,};"
        f" highest {value.max():.3g}."
    )
    return Figure(id=name, title=title, unit="", axis_label=axis, curves=tuple(curves), summary=summary)

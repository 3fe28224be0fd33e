"""A run's losses as curves: training with its noise, validation with its error, reference, forecast.

What is drawn comes from the evidence (a value with its line) or from the reading (a value with its formula);
long series are thinned without losing a spike. A line of a log that lacks a quantity is passed over. A loss
that the trainer printed as no number is a gap, with a mark where it began.
"""

import math

import numpy as np

from gptwright.diagnose.evaluation import standard_error
from gptwright.diagnose.forecast import RunForecast
from gptwright.diagnose.reading import Reading
from gptwright.diagnose.reference import reference_curve
from gptwright.diagnose.series import Series, eval_train_loss, one_a_step, val_curve, val_loss
from gptwright.record.arrays import Floats, Integers
from gptwright.record.evidence import EventKind
from gptwright.report.figures import Curve, Figure, Mark, Shape
from gptwright.report.thinning import MOST_BUCKETS, thin, trend_of

TRAIN, VAL, OTHER, FORECAST, REFERENCE = 0, 1, 2, 3, 6
# 1.96 standard errors on either side of an evaluation hold the split's own loss in 95 of 100.
SURE = 1.96
# More marks than this hide the curve they stand on.
MOST_MARKS = 12


def loss_figure(reading: Reading, forecast: RunForecast | None) -> Figure | None:
    """Training with its noise, validation with its error, the reference and the forecast."""
    curves = [
        *reference_curves(reading),
        *train_curves(reading),
        *evaluation_curves(reading),
        *forecast_curves(reading, forecast),
    ]
    if not curves:
        return None
    return Figure(
        id="loss",
        title="Loss",
        unit="nats",
        axis_label="loss, nats a token",
        curves=tuple(curves),
        marks=(*best_mark(val_loss(reading)), *event_marks(reading)),
        summary=" ".join([*_train_summary(reading), *_val_summary(val_loss(reading))]),
        note=_note(reading),
    )


def bits_figure(reading: Reading) -> Figure | None:
    """Validation of a trainer that prints only bits a byte, which no axis shares with nats a token."""
    val = val_curve(reading)
    if val.name != "val_bpb" or not len(val):
        return None
    return Figure(
        id="bits-per-byte",
        title="Validation, bits a byte",
        unit="nats",
        axis_label="bits a byte",
        curves=tuple(val_curves(reading, val)),
        marks=best_mark(val),
        summary=" ".join(_val_summary(val)),
    )


def train_curves(reading: Reading, *, label: str = "train", color: int = TRAIN, run: int = 0) -> list[Curve]:
    """The training loss: every line faint, its trend with the noise in front; a short log as it is."""
    train = reading.train
    if train is None:
        return []
    told = np.flatnonzero(np.isfinite(train.loss) | train.loss_is_bad)
    rows = told[one_a_step(train.step[told])]
    if not len(rows):
        return []
    step, value = train.step[rows], np.where(train.loss_is_bad[rows], np.nan, train.loss[rows])
    what = reading.log.format.train_loss if reading.log is not None else ""
    origin = f"{lines_of(train.line[rows])}: {what}, dropout on where there is one"
    at, thinned = thin(step, value)
    trend = trend_of(step, value)
    each = Curve(
        label=label if trend is None else f"{label}, every line",
        shape=Shape.LINE,
        step=at,
        value=thinned,
        origin=origin,
        color=color,
        style="plain" if trend is None else "faint",
        run=run,
    )
    if trend is None:
        return [each]
    how = f"median of {trend.rows} lines each"
    noise = Curve(
        label=f"{label}, noise (±1 s.d.)",
        shape=Shape.BAND,
        step=trend.step,
        value=trend.middle,
        low=trend.low,
        high=trend.high,
        origin=f"standard deviation of one line around the trend, from differences of neighbours, {how}",
        color=color,
        run=run,
    )
    middle = Curve(
        label=f"{label}, trend",
        shape=Shape.LINE,
        step=trend.step,
        value=trend.middle,
        origin=how,
        color=color,
        run=run,
    )
    return [noise, each, middle]


def evaluation_curves(reading: Reading) -> list[Curve]:
    """Validation with error bars, and the loss on training data where evaluations have it."""
    curves = []
    trained = eval_train_loss(reading)
    if len(trained):
        curves.append(
            Curve(
                label="train, evaluated",
                shape=Shape.DOTS,
                step=trained.step,
                value=trained.value,
                origin=f"{lines_of(trained.line)}: evaluated without dropout",
                color=OTHER,
                style="dashed",
            )
        )
    return [*curves, *val_curves(reading, val_loss(reading))]


def val_curves(
    reading: Reading, val: Series, *, label: str = "validation", color: int = VAL, run: int = 0
) -> list[Curve]:
    """Validation with 95 % error bars where its error is printed, or follows from the evaluation's design."""
    if not len(val):
        return []
    errors = _errors(reading, val)
    known = errors is not None and bool(np.isfinite(errors).any())
    origin = f"{lines_of(val.line)}" + ("; bars: ±1.96 standard errors" if known else "")
    return [
        Curve(
            label=label,
            shape=Shape.DOTS,
            step=val.step,
            value=val.value,
            low=val.value - SURE * errors if errors is not None and known else None,
            high=val.value + SURE * errors if errors is not None and known else None,
            origin=origin,
            color=color,
            run=run,
        )
    ]


def _errors(reading: Reading, val: Series) -> Floats | None:
    """One standard error an evaluation: as printed on its line, else the one that holds for all."""
    evals = reading.evals
    if evals is None or val.name == "val_bpb":
        return None
    printed = evals.val_standard_error[np.searchsorted(evals.line, val.line)]
    if np.isfinite(printed).any():
        return printed
    error = standard_error(reading)
    return np.full(len(val), error) if error else None


def reference_curves(reading: Reading) -> list[Curve]:
    """What comparable public runs reached after as many tokens, as a band."""
    expected = reference_curve(reading)
    if not expected:
        return []
    low, likely, high = (
        np.array([getattr(band, name) for _, band in expected]) for name in ("low", "likely", "high")
    )
    nearest = expected[-1][1]
    return [
        Curve(
            label="comparable public runs",
            shape=Shape.BAND,
            step=np.array([step for step, _ in expected]),
            value=likely,
            low=low,
            high=high,
            origin=f"{nearest.curve}; {nearest.basis} ({nearest.source})",
            color=REFERENCE,
        )
    ]


def forecast_curves(reading: Reading, forecast: RunForecast | None) -> list[Curve]:
    """From the last point of the run's own curve to where it is heading at the planned end."""
    planned = reading.progress.planned_steps
    if forecast is None or forecast.planned_end is None or planned is None:
        return []
    end, last = forecast.planned_end, float(forecast.curve.value[-1])
    return [
        Curve(
            label="forecast (9 of 10)",
            shape=Shape.DOTS,
            step=np.array([float(forecast.curve.step[-1]), planned.number]),
            value=np.array([last, end.likely]),
            low=np.array([math.nan, end.low]),
            high=np.array([math.nan, end.high]),
            origin=f"the fit of this run's own {forecast.curve.name} continued to step {planned.number:,.0f}",
            color=FORECAST,
            style="dashed",
        )
    ]


def best_mark(val: Series) -> tuple[Mark, ...]:
    """The best evaluation."""
    if val.best is None:
        return ()
    value = float(val.value[val.best])
    return (Mark(step=float(val.step[val.best]), value=value, text=f"best {value:.4f}"),)


def event_marks(reading: Reading, run: int = 0) -> tuple[Mark, ...]:
    """Where the run was resumed, ran out of memory, or its loss stopped being a number."""
    log, train = reading.log, reading.train
    words = {EventKind.RESUME: "resumed", EventKind.OUT_OF_MEMORY: "out of memory"}
    marks = [
        Mark(step=float(event.step or 0), text=words[event.kind], run=run)
        for event in (log.events if log is not None else ())
        if event.kind in words
    ]
    if train is not None and train.loss_is_bad.any():
        first = int(np.flatnonzero(train.loss_is_bad)[0])
        marks.append(Mark(step=float(train.step[first]), text="loss is no number", run=run))
    return tuple(marks[:MOST_MARKS])


def _train_summary(reading: Reading) -> list[str]:
    train = reading.train
    if train is None:
        return []
    known = np.flatnonzero(np.isfinite(train.loss))
    if not len(known):
        return []
    first, last = int(known[0]), int(known[-1])
    return [
        f"The training loss goes from {train.loss[first]:.4f} at step {train.step[first]:,}"
        f" to {train.loss[last]:.4f} at step {train.step[last]:,}."
    ]


def _val_summary(val: Series) -> list[str]:
    if val.best is None:
        return []
    return [
        f"The best validation is {val.value[val.best]:.4f} at step {val.step[val.best]:,},"
        f" the last {val.value[-1]:.4f} at step {val.step[-1]:,}."
    ]


def _note(reading: Reading) -> str:
    train = reading.train
    if train is None or len(train) <= 2 * MOST_BUCKETS:
        return ""
    return f"{len(train):,} lines are drawn by the lowest and highest of each stretch; no spike is lost."


def lines_of(line: Integers) -> str:
    """Which lines of the log, as the origin of a curve says it."""
    return (
        f"lines {line.min():,} to {line.max():,} of the log"
        if len(line) > 1
        else f"line {line[0]:,} of the log"
    )

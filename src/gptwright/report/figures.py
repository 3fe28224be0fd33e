"""A chart as data: what is drawn, in which colour, and where each curve comes from. Nothing here draws.

The page's script (`assets/chart.js`) and the pictures (`pictures.py`) draw the same figures. A curve is told
over optimizer steps; an `Axis` says what a step is worth in tokens, hours or FLOPs, so that the page can
change its horizontal axis without carrying every curve four times.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from gptwright.record.arrays import Floats, Integers

# Six digits are more than a screen shows and a person reads; they keep the page small.
DIGITS = 6
Number = float | int | None


class Shape(StrEnum):
    """How a curve is drawn."""

    LINE = "line"
    DOTS = "dots"  # joined by a line, with error bars where `low` and `high` are there
    BAND = "band"  # the area between `low` and `high`


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One curve.

    Attributes:
        label: what it is, as the legend says it.
        shape: how it is drawn.
        step: optimizer steps, rising.
        value: NaN is a gap.
        low: lower ends of error bars or of a band, if there are any.
        high: upper ends.
        origin: where the values come from, as a person reads it.
        color: 0 to 7, one of the page's colours.
        style: `plain`, `faint` (behind another), `dashed`.
        run: which run of the page it belongs to, from 0.
    """

    label: str
    shape: Shape
    step: Integers | Floats
    value: Floats
    low: Floats | None = None
    high: Floats | None = None
    origin: str
    color: int = 0
    style: str = "plain"
    run: int = 0

    def document(self) -> dict[str, Any]:
        """The curve as the page's script reads it."""
        document: dict[str, Any] = {
            "label": self.label,
            "shape": str(self.shape),
            "x": numbers(self.step),
            "y": numbers(self.value),
            "origin": self.origin,
            "color": self.color,
            "style": self.style,
            "run": self.run,
        }
        if self.low is not None and self.high is not None:
            document |= {"low": numbers(self.low), "high": numbers(self.high)}
        return document


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A place worth pointing at: the best evaluation (with a value), a resume, a loss that is no number.

    Attributes:
        step: where.
        text: what, in a few words.
        value: how high; None marks the whole height.
        run: which run of the page it belongs to.
    """

    step: float
    text: str
    value: float | None = None
    run: int = 0

    def document(self) -> dict[str, Any]:
        """The mark as the page's script reads it."""
        return {"x": number(self.step), "y": number(self.value), "text": self.text, "run": self.run}


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One chart.

    Attributes:
        id: a short name, for links and file names.
        title: what it shows.
        unit: of the vertical axis, as `units.text` knows it.
        axis_label: the vertical axis in words.
        curves: in drawing order.
        marks: places to point at.
        summary: the chart in a sentence or two, for who cannot see it.
        note: how it is to be read; empty if that is plain.
    """

    id: str
    title: str
    unit: str
    axis_label: str
    curves: tuple[Curve, ...]
    marks: tuple[Mark, ...] = ()
    summary: str
    note: str = ""

    def document(self) -> dict[str, Any]:
        """The figure as the page's script reads it."""
        return {
            "id": self.id,
            "title": self.title,
            "unit": self.unit,
            "label": self.axis_label,
            "summary": self.summary,
            "curves": [curve.document() for curve in self.curves],
            "marks": [mark.document() for mark in self.marks],
        }


@dataclass(frozen=True, slots=True)
class Axis:
    """What an optimizer step is worth.

    Attributes:
        name: `steps`, `tokens`, `hours` or `flops`.
        per_step: in that unit.
        origin: how that is known.
    """

    name: str
    per_step: float
    origin: str

    def document(self) -> dict[str, Any]:
        """The axis as the page's script reads it."""
        return {"name": self.name, "per_step": number(self.per_step), "origin": self.origin}


def common_axes(runs: Sequence[Sequence[Axis]]) -> list[str]:
    """The axes that every run has, in the order of the first."""
    return [axis.name for axis in runs[0] if all(axis.name in {a.name for a in run} for run in runs)]


def numbers(values: Iterable[float] | Integers | Floats) -> list[Number]:
    """Values for JSON: six digits, whole numbers without a point, null for what is no number."""
    return [number(value) for value in (values.tolist() if isinstance(values, np.ndarray) else values)]


def number(value: float | None) -> Number:
    """One value for JSON."""
    if value is None or isinstance(value, int):
        return value
    if not math.isfinite(value):
        return None
    short = float(f"{value:.{DIGITS}g}")
    return int(short) if short.is_integer() and abs(short) < 1e15 else short

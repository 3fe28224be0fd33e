"""Every plot of a page as SVG and PNG, for a README or a paper, drawn by matplotlib from the same figures.

matplotlib and not the page's own script: it needs no browser, brings its own fonts, and papers take its SVG.
Two runs give the same bytes: no date is written, and ids in the SVG are drawn from a fixed salt.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from gptwright.errors import ConfigError
from gptwright.files import unwritable_as_error
from gptwright.report.figures import Curve, Figure, Mark, Shape

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# The page's light colours, in their order.
COLORS = ("#2563a8", "#c2500a", "#2b7a4b", "#8a3fa0", "#a3343f", "#6b6f00", "#0e7c86", "#6a5acd")
WIDTH, HEIGHT, DOTS_PER_INCH = 7.2, 4.0, 150
STYLE = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#ecebe7",
    "axes.edgecolor": "#a7abb0",
    "axes.axisbelow": True,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "svg.hashsalt": "gptwright",
    # Text stays text, so that a search finds it.
    "svg.fonttype": "none",
}
# The share of a run whose fall hides everything after it, as in the page.
START_SHARE = 0.03
DOMINATED = 0.5


def write_pictures(figures: Sequence[Figure], folder: Path) -> list[Path]:
    """Writes `NAME.svg` and `NAME.png` of every figure; returns their paths.

    Raises:
        ConfigError: matplotlib is not installed.
        OutputError: they cannot be put there.
    """
    try:
        import matplotlib as mpl
    except ModuleNotFoundError:
        raise ConfigError(
            "--plots needs matplotlib, which is not installed", fix="pip install 'gptwright[plots]'"
        ) from None
    # A canvas of the library itself, so that no screen and no window toolkit is asked for.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas

    paths = []
    with unwritable_as_error(folder), mpl.rc_context(cast("Any", STYLE)):
        folder.mkdir(parents=True, exist_ok=True)
        for figure in figures:
            canvas = Canvas(figsize=(WIDTH, HEIGHT), dpi=DOTS_PER_INCH, layout="constrained")
            FigureCanvasAgg(canvas)
            _draw(canvas.add_subplot(), figure)
            for ending, metadata in (("svg", {"Date": None}), ("png", {"Software": None})):
                path = folder / f"{figure.id}.{ending}"
                canvas.savefig(path, metadata=metadata)
                paths.append(path)
    return paths


def _draw(axes: "Axes", figure: Figure) -> None:
    for curve in figure.curves:
        _draw_curve(axes, curve)
    last = max(float(curve.step[-1]) for curve in figure.curves)
    for mark in figure.marks:
        _draw_mark(axes, mark, at_the_end=mark.step > 0.85 * last)
    axes.set_title(figure.title, loc="left", fontweight="bold", fontsize=11)
    axes.set_xlabel("optimizer steps")
    axes.set_ylabel(figure.axis_label)
    axes.margins(x=0.01)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    if figure.unit == "fraction":
        axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:g} %")
    _leave_out_the_start(axes, figure)
    if len(figure.curves) > 1:
        axes.legend()


def _draw_curve(axes: "Axes", curve: Curve) -> None:
    color = COLORS[curve.color % len(COLORS)]
    if curve.shape is Shape.BAND and curve.low is not None and curve.high is not None:
        axes.fill_between(
            curve.step, curve.low, curve.high, color=color, alpha=0.16, linewidth=0, label=curve.label
        )
        return
    faint = curve.style == "faint"
    line = "--" if curve.style == "dashed" else "-"
    axes.plot(
        curve.step,
        curve.value,
        line,
        color=color,
        label=curve.label,
        linewidth=0.7 if faint else 1.5,
        alpha=0.35 if faint else 1.0,
        marker="o" if curve.shape is Shape.DOTS else None,
        markersize=3,
    )
    if curve.low is not None and curve.high is not None:
        axes.vlines(curve.step, curve.low, curve.high, color=color, linewidth=1, alpha=0.75)


def _draw_mark(axes: "Axes", mark: Mark, *, at_the_end: bool) -> None:
    if mark.value is None:
        axes.axvline(mark.step, color="#5b636d", linestyle=":", linewidth=1)
        place, align = (mark.step, 1.0), ("data", "axes fraction")
    else:
        axes.plot([mark.step], [mark.value], "o", markersize=8, fillstyle="none", color="#1d2126")
        place, align = (mark.step, mark.value), ("data", "data")
    axes.annotate(
        mark.text,
        place,
        xycoords=align,
        xytext=(0, 9),
        textcoords="offset points",
        ha="right" if at_the_end else "left",
        fontsize=9,
    )


def _leave_out_the_start(axes: "Axes", figure: Figure) -> None:
    """Cuts the height to what comes after the first fall, where that fall takes most of it."""
    steps = np.concatenate([curve.step for curve in figure.curves])
    late = steps.min() + START_SHARE * (steps.max() - steps.min())
    everything, rest = _span(figure.curves, -np.inf), _span(figure.curves, late)
    if rest[1] - rest[0] < DOMINATED * (everything[1] - everything[0]):
        air = 0.06 * (rest[1] - rest[0])
        axes.set_ylim(rest[0] - air, rest[1] + air)


def _span(curves: Sequence[Curve], begin: float) -> tuple[float, float]:
    values = [
        column[curve.step >= begin]
        for curve in curves
        for column in (curve.value, curve.low, curve.high)
        if column is not None
    ]
    finite = np.concatenate(values)
    finite = finite[np.isfinite(finite)]
    return (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 0.0)

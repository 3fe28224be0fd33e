"""Several runs on one page: what is not held fixed, who is ahead, and their curves in one picture."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from gptwright import units
from gptwright.diagnose.compare import Comparison, Point
from gptwright.diagnose.reading import Reading
from gptwright.diagnose.series import Series, val_curve, val_loss
from gptwright.facts import Value
from gptwright.record.arrays import Floats, Integers
from gptwright.report.curves import event_marks, train_curves, val_curves
from gptwright.report.figures import Axis, Curve, Figure, Shape
from gptwright.report.html import Html, table, tag
from gptwright.report.material import Material
from gptwright.report.run_figures import axes_of, clean_rates, column_of
from gptwright.report.thinning import thin

COLORS = 8
LETTERS = "abcdefghijklmnopqrstuvwxyz"
# A part of a page: its name in links, its heading, and what it holds; None leaves it out.
Section = tuple[str, str, Html | None]
Found = Callable[[Reading], tuple[Integers, Floats] | None]


def names_of(materials: Sequence[Material]) -> list[str]:
    """The runs' names, where two are alike with a letter in front."""
    names = [material.name for material in materials]
    if len(set(names)) == len(names):
        return names
    return [f"{LETTERS[at % len(LETTERS)]} · {name}" for at, name in enumerate(names)]


def shared_axes(materials: Sequence[Material]) -> list[list[Axis]]:
    """Each run's axes."""
    return [list(axes_of(material.reading)) for material in materials]


def comparison_sections(materials: Sequence[Material], comparisons: Sequence[Comparison]) -> list[Section]:
    """Differences first, then the runs side by side."""
    names = names_of(materials)
    return [
        ("differences", "What is not held fixed", _differences(names, comparisons)),
        ("runs", "Side by side", _runs(names, materials)),
    ]


def points_section(materials: Sequence[Material], comparisons: Sequence[Comparison]) -> Html | None:
    """The losses where the runs had used as many tokens, hours or FLOPs."""
    return _points(names_of(materials), comparisons)


def _differences(names: Sequence[str], comparisons: Sequence[Comparison]) -> Html:
    parts: list[Html | None] = []
    for name, comparison in zip(names[1:], comparisons, strict=True):
        rows = [(False, [tag("code", d.field), _text(d.a), _text(d.b)]) for d in comparison.differences]
        parts.append(
            table(f"{names[0]} and {name}", ["setting", names[0], name], rows)
            if rows
            else tag("p", f"No setting that both {names[0]} and {name} name differs.")
        )
        if comparison.reasons:
            label = "To keep in mind:" if comparison.comparable else "Not comparable:"
            parts.append(tag("div", tag("p", label), tag("ul", [tag("li", r) for r in comparison.reasons])))
    return tag("div", parts, class_="tables")


def _runs(names: Sequence[str], materials: Sequence[Material]) -> Html:
    rows = []
    for name, material in zip(names, materials, strict=True):
        reading, val = material.reading, val_curve(material.reading)
        best = val.best
        facts = (
            reading.sizes.parameters,
            reading.progress.tokens_seen,
            reading.speed.tokens_per_second,
            reading.mfu,
        )
        parameters, tokens, rate, mfu = (fact.text if fact is not None else "–" for fact in facts)
        loss = f"{val.value[best]:.4f} at step {val.step[best]:,}" if best is not None else "–"
        rows.append((False, [name, parameters, tokens, loss, rate, mfu]))
    columns = ["run", "parameters #", "tokens #", "best validation #", "speed #", "MFU #"]
    return table("Each run's own numbers", columns, rows)


def _points(names: Sequence[str], comparisons: Sequence[Comparison]) -> Html | None:
    parts = []
    for name, comparison in zip(names[1:], comparisons, strict=True):
        for title, points, form in (
            (f"At equal {comparison.counts}", comparison.at_equal_tokens, units.count),
            ("At equal training time", comparison.at_equal_seconds, units.duration),
            ("At equal FLOPs", comparison.at_equal_flops, _flops),
        ):
            if points:
                rows = [(p.significant, [form(p.at), *_cells(p)]) for p in points]
                columns = ["at", f"{names[0]} #", f"{name} #", "difference #", "± 1 s.e. #"]
                parts.append(
                    table(f"{title}: {names[0]} and {name}", columns, rows, hint="Shaded: beyond the noise.")
                )
    return tag("div", parts, class_="tables") if parts else None


def _cells(point: Point) -> list[str]:
    return [f"{point.a:.4f}", f"{point.b:.4f}", f"{point.delta:+.4f}", f"{point.standard_error:.4f}"]


def _flops(value: float) -> str:
    return f"{value:.2e}"


def _text(value: Value) -> str:
    return "–" if value is None else str(value)


def comparison_figures(materials: Sequence[Material]) -> tuple[Figure, ...]:
    """Losses, learning rate, gradient norm and speed of all runs, one colour a run."""
    columns: tuple[tuple[str, str, str, Found], ...] = (
        ("learning-rate", "Learning rate", "", lambda reading: column_of(reading, "learning_rate")),
        ("grad-norm", "Gradient norm", "", lambda reading: column_of(reading, "grad_norm")),
        ("tokens-per-second", "Speed, evaluations taken out", "tokens/s", clean_rates),
    )
    figures = [
        _losses(materials),
        _bits(materials),
        *(_overlaid(name, title, unit, materials, found) for name, title, unit, found in columns),
    ]
    return tuple(figure for figure in figures if figure.curves)


def _losses(materials: Sequence[Material]) -> Figure:
    """Validation in front, every training line faint behind it."""
    names = names_of(materials)
    behind: list[Curve] = []
    front: list[Curve] = []
    for at, (name, material) in enumerate(zip(names, materials, strict=True)):
        trained = train_curves(material.reading, label=f"{name} · train", color=at % COLORS, run=at)
        lines = [curve for curve in trained if curve.shape is Shape.LINE]
        behind += [replace(curve, style="faint") for curve in lines[:1]]
        val = val_loss(material.reading)
        front += val_curves(material.reading, val, label=f"{name} · validation", color=at % COLORS, run=at)
    marks = [mark for at, material in enumerate(materials) for mark in event_marks(material.reading, at)]
    return Figure(
        id="loss",
        title="Loss",
        unit="nats",
        axis_label="loss, nats a token",
        curves=(*behind, *front),
        marks=tuple(marks),
        summary=_bests(names, [val_loss(material.reading) for material in materials]),
    )


def _bits(materials: Sequence[Material]) -> Figure:
    """Validation of those whose trainers print only bits a byte."""
    names = names_of(materials)
    series = [val_curve(material.reading) for material in materials]
    curves = [
        curve
        for at, (name, material, val) in enumerate(zip(names, materials, series, strict=True))
        if val.name == "val_bpb"
        for curve in val_curves(material.reading, val, label=name, color=at % COLORS, run=at)
    ]
    return Figure(
        id="bits-per-byte",
        title="Validation, bits a byte",
        unit="nats",
        axis_label="bits a byte",
        curves=tuple(curves),
        summary=_bests(names, series),
    )


def _overlaid(name: str, title: str, unit: str, materials: Sequence[Material], found: Found) -> Figure:
    curves = [
        Curve(
            label=label,
            shape=Shape.LINE,
            step=step,
            value=value,
            origin=f"{title.lower()}, by the lines of its log",
            color=at % COLORS,
            run=at,
        )
        for at, (label, material) in enumerate(zip(names_of(materials), materials, strict=True))
        if (series := found(material.reading)) is not None
        for step, value in [thin(*series)]
    ]
    ends = [f"{curve.label} ends at {units.text(float(curve.value[-1]), unit)}" for curve in curves]
    return Figure(
        id=name,
        title=title,
        unit=unit,
        axis_label=unit or title.lower(),
        curves=tuple(curves),
        summary="; ".join(ends) + ".",
    )


def _bests(names: Sequence[str], series: Sequence[Series]) -> str:
    parts = []
    for name, val in zip(names, series, strict=True):
        if val.best is not None:
            parts.append(f"{name} is best at step {val.step[val.best]:,} with {val.value[val.best]:.4f}")
        else:
            parts.append(f"{name} has no validation")
    return "; ".join(parts) + "."

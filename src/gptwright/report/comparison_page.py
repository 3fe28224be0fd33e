"""Several runs on one page: what is not held fixed, who is ahead, and their curves in one picture."""

from collections.abc import Sequence

from gptwright import units
from gptwright.diagnose.compare import Comparison, Point
from gptwright.diagnose.series import val_curve
from gptwright.facts import Value
from gptwright.report.curves import event_marks, train_curves, val_curves
from gptwright.report.figures import Axis, Curve, Figure, Shape
from gptwright.report.html import Html, table, tag
from gptwright.report.material import Material
from gptwright.report.run_figures import axes_of, clean_rates, column_of
from gptwright.report.thinning import thin

COLORS = 8
# Letters as the comparison's documents and the terminal call two runs.
LETTERS = "abcdefghijklmnopqrstuvwxyz"
Section = tuple[str, str, Html | None]


def names_of(materials: Sequence[Material]) -> list[str]:
    """The runs' names, with a letter in front so that two of one name stay apart."""
    return [f"{LETTERS[at % len(LETTERS)]} · {material.name}" for at, material in enumerate(materials)]


def shared_axes(materials: Sequence[Material]) -> list[list[Axis]]:
    """Each run's axes."""
    return [list(axes_of(material.reading)) for material in materials]


def comparison_sections(materials: Sequence[Material], comparisons: Sequence[Comparison]) -> list[Section]:
    """Differences first, then the runs side by side, then the losses where they had used as much."""
    names = names_of(materials)
    return [
        ("differences", "What is not held fixed", _differences(names, comparisons)),
        ("runs", "Side by side", _runs(names, materials)),
        ("points", "At equal cost", _points(names, comparisons)),
    ]


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
        best = int(val.value.argmin()) if len(val) else None
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
            ("At equal tokens", comparison.at_equal_tokens, units.count),
            ("At equal training time", comparison.at_equal_seconds, units.duration),
            ("At equal FLOPs", comparison.at_equal_flops, _flops),
        ):
            if points:
                rows = [(_beyond(p), [form(p.at), *_cells(p)]) for p in points]
                columns = ["at", f"{names[0]} #", f"{name} #", "difference #", "± 1 s.e. #"]
                parts.append(table(f"{title}: {names[0]} and {name}", columns, rows))
    return tag("div", parts, class_="tables") if parts else None


def _cells(point: Point) -> list[str]:
    return [f"{point.a:.4f}", f"{point.b:.4f}", f"{point.delta:+.4f}", f"{point.standard_error:.4f}"]


def _beyond(point: Point) -> bool:
    """Whether the difference is more than noise leaves in 95 of 100 cases."""
    return abs(point.delta) > 1.96 * point.standard_error > 0


def _flops(value: float) -> str:
    return f"{value:.2e}"


def _text(value: Value) -> str:
    return "–" if value is None else str(value)


def comparison_figures(materials: Sequence[Material]) -> tuple[Figure, ...]:
    """Losses, learning rate, gradient norm and speed of all runs, one colour a run."""
    names = names_of(materials)
    loss: list[Curve] = []
    for at, (name, material) in enumerate(zip(names, materials, strict=True)):
        trained = train_curves(material.reading, label=f"{name} · train", color=at % COLORS, run=at)
        loss += [
            *[curve for curve in trained if curve.shape is Shape.LINE][:1],
            *val_curves(material.reading, label=f"{name} · validation", color=at % COLORS, run=at),
        ]
    marks = [mark for at, material in enumerate(materials) for mark in event_marks(material.reading, at)]
    summary = "; ".join(_best(name, material) for name, material in zip(names, materials, strict=True)) + "."
    figures = [
        Figure(
            id="loss",
            title="Loss",
            unit="nats",
            axis_label="loss, nats a token",
            curves=tuple(loss),
            marks=tuple(marks),
            summary=summary,
        )
    ]
    for id_, title, axis in (
        ("learning-rate", "Learning rate", "learning_rate"),
        ("grad-norm", "Gradient norm", "grad_norm"),
    ):
        curves = [
            Curve(
                label=name,
                shape=Shape.LINE,
                step=step,
                value=value,
                origin="as printed",
                color=at % COLORS,
                run=at,
            )
            for at, (name, material) in enumerate(zip(names, materials, strict=True))
            if (found := column_of(material.reading, axis)) is not None
            for step, value in [thin(*found)]
        ]
        figures.append(_overlaid(id_, title, "", title.lower(), curves))
    speeds = [
        Curve(
            label=name,
            shape=Shape.LINE,
            step=step,
            value=value,
            origin="lines that time a step and nothing else",
            color=at % COLORS,
            run=at,
        )
        for at, (name, material) in enumerate(zip(names, materials, strict=True))
        if (found := clean_rates(material.reading)) is not None
        for step, value in [thin(*found)]
    ]
    figures.append(
        _overlaid("tokens-per-second", "Speed, evaluations taken out", "tokens/s", "tokens/s", speeds)
    )
    return tuple(figure for figure in figures if figure.curves)


def _overlaid(id_: str, title: str, unit: str, axis: str, curves: Sequence[Curve]) -> Figure:
    ends = [f"{c.label} ends at {units.text(float(c.value[-1]), unit)}" for c in curves]
    return Figure(
        id=id_, title=title, unit=unit, axis_label=axis, curves=tuple(curves), summary="; ".join(ends) + "."
    )


def _best(name: str, material: Material) -> str:
    val = val_curve(material.reading)
    if not len(val):
        return f"{name} has no validation"
    best = int(val.value.argmin())
    return f"{name} is best at step {val.step[best]:,} with {val.value[best]:.4f}"

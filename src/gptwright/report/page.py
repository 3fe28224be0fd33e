"""The report: one HTML file that opens offline, in any browser, years later.

Style, script and data are in the file, and its Content-Security-Policy forbids everything else: no request
leaves it, and only the script whose hash the policy names may run. It holds no time and no machine of its
own, so that making it again from the same record gives the same bytes.
"""

import base64
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gptwright import __version__
from gptwright.diagnose.compare import compare
from gptwright.files import replace_bytes, unwritable_as_error
from gptwright.report.assets import STYLE, asset, chart_script
from gptwright.report.comparison_page import (
    Section,
    comparison_figures,
    comparison_sections,
    names_of,
    points_section,
    shared_axes,
)
from gptwright.report.figures import Axis, Figure, common_axes
from gptwright.report.html import Html, joined, tag
from gptwright.report.material import Material
from gptwright.report.run_figures import axes_of, figures_of
from gptwright.report.sections import (
    findings_section,
    numbers_section,
    outlook_section,
    promise_section,
    record_section,
    samples_section,
)
from gptwright.report.settings_section import settings_section
from gptwright.report.verdict import verdict_of

AXIS_NAMES = {"steps": "steps", "tokens": "tokens", "hours": "hours", "flops": "FLOPs"}


def page_figures(materials: Sequence[Material]) -> tuple[Figure, ...]:
    """The charts of a page of these runs."""
    if len(materials) == 1:
        return figures_of(materials[0].reading, materials[0].forecast)
    return comparison_figures(materials)


def write_report(path: Path, materials: Sequence[Material]) -> None:
    """Writes the page of these runs in one step; its folder is made if need be.

    Raises:
        OutputError: it cannot be put there.
    """
    # JSON can hold halves of characters, which no file can.
    page = report_page(materials).encode("utf-8", errors="replace")
    with unwritable_as_error(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_bytes(path, page)


def report_page(materials: Sequence[Material]) -> str:
    """The page of one run, or of several beside each other.

    Args:
        materials: one run, or the run that the others are compared with and these.
    """
    return _page_of_run(materials[0]) if len(materials) == 1 else _page_of_comparison(materials)


def _page_of_run(material: Material) -> str:
    reading, diagnosis = material.reading, material.diagnosis
    figures = page_figures([material])
    axes = [list(axes_of(reading))]
    return _document(
        title=material.name,
        eyebrow=f"gptwright report · {reading.evidence.path}",
        verdicts=[verdict_of(diagnosis.findings, ran=reading.log is not None)],
        sections=[
            ("numbers", "In numbers", numbers_section(reading)),
            ("findings", "What they say", findings_section(diagnosis.findings, diagnosis.unknown)),
            ("curves", "Curves", charts_section(figures, axes)),
            ("outlook", "Where it is heading", outlook_section(material)),
            ("promise", "Promise and outcome", promise_section(material)),
            ("samples", "Samples", samples_section(material.samples)),
            ("settings", "Settings", settings_section(material)),
            ("record", "The record", record_section(material)),
        ],
        data=page_data(figures, [material.name], axes),
    )


def _page_of_comparison(materials: Sequence[Material]) -> str:
    first, *others = materials
    comparisons = [compare(first.reading, other.reading) for other in others]
    names, figures, axes = names_of(materials), page_figures(materials), shared_axes(materials)
    return _document(
        title=" against ".join(names),
        eyebrow="gptwright report · comparison",
        verdicts=[
            " ".join(
                [f"a is {names[0]}, b is {name}.", *(finding.message for finding in comparison.findings)]
            )
            for name, comparison in zip(names[1:], comparisons, strict=True)
        ],
        sections=[
            *comparison_sections(materials, comparisons),
            ("curves", "Curves", charts_section(figures, axes)),
            ("points", "At equal cost", points_section(materials, comparisons)),
            *[
                (f"run-{at}", name, _run_in_short(material))
                for at, (name, material) in enumerate(zip(names, materials, strict=True))
            ],
        ],
        data=page_data(figures, names, axes),
    )


def _run_in_short(material: Material) -> Html:
    return tag(
        "div",
        tag(
            "p",
            verdict_of(material.diagnosis.findings, ran=material.reading.log is not None),
            class_="verdict",
        ),
        numbers_section(material.reading),
        findings_section(material.diagnosis.findings, material.diagnosis.unknown),
        class_="tables",
    )


def page_data(
    figures: Sequence[Figure], names: Sequence[str], axes: Sequence[Sequence[Axis]]
) -> dict[str, Any]:
    """What the script draws."""
    return {
        "runs": [
            {"name": name, "axes": [axis.document() for axis in of_run]}
            for name, of_run in zip(names, axes, strict=True)
        ],
        "figures": [figure.document() for figure in figures],
    }


def charts_section(figures: Sequence[Figure], axes: Sequence[Sequence[Axis]]) -> Html | None:
    """All charts under one choice of the horizontal axis; the first is the widest."""
    if not figures:
        return tag("p", "The record holds no series to draw.")
    names = common_axes(axes)
    return tag(
        "div",
        _axis_choice(names) if len(names) > 1 else None,
        tag(
            "div",
            [figure_element(figure, wide=at == 0) for at, figure in enumerate(figures)],
            class_="charts",
        ),
        _axis_origins(axes[0]) if len(axes) == 1 else None,
    )


def figure_element(figure: Figure, *, wide: bool) -> Html:
    """The place of one chart: title, summary, drawing, data table, and where the curves come from."""
    return tag(
        "figure",
        tag(
            "figcaption",
            tag("span", figure.title, class_="title"),
            tag("p", f"{figure.summary} {figure.note}".strip(), class_="summary"),
        ),
        tag(
            "div",
            tag("noscript", "The chart needs JavaScript; its summary is above."),
            id=f"plot-{figure.id}",
        ),
        tag("details", tag("summary", f"Data: {figure.title}"), id=f"table-{figure.id}"),
        tag(
            "details",
            tag("summary", f"Where it comes from: {figure.title}"),
            tag("ul", [tag("li", f"{c.label}: {c.origin}") for c in figure.curves], class_="evidence"),
        ),
        class_="card wide" if wide else "card",
    )


def _axis_choice(names: Sequence[str]) -> Html:
    choices = [
        tag(
            "label",
            tag("input", type="radio", name="axis", value=name, checked=name == "steps"),
            tag("span", AXIS_NAMES[name]),
        )
        for name in names
    ]
    return tag("fieldset", tag("legend", "Along the horizontal axis:"), choices, class_="axes")


def _axis_origins(axes: Sequence[Axis]) -> Html:
    items = [tag("li", f"{AXIS_NAMES[axis.name]}: {axis.origin}") for axis in axes]
    return tag("details", tag("summary", "What a step is worth"), tag("ul", items, class_="evidence"))


def _document(
    *, title: str, eyebrow: str, verdicts: Sequence[str], sections: Sequence[Section], data: dict[str, Any]
) -> str:
    style, script = asset(STYLE), chart_script() + asset("page.js")
    there = [(name, heading, body) for name, heading, body in sections if body is not None]
    body = tag(
        "body",
        tag("a", "To the content", href="#content", class_="skip"),
        tag(
            "header",
            tag("p", eyebrow, class_="eyebrow"),
            tag("h1", title),
            [tag("p", verdict, class_="verdict") for verdict in verdicts],
            _navigation(there),
        ),
        tag("main", [_section(*section) for section in there], id="content"),
        tag(
            "footer",
            tag("p", f"Made by gptwright {__version__} from the run's own record. Nothing is loaded."),
        ),
        tag("script", _embedded(data), type="application/json", id="data"),
        tag("script", Html(script)),
    )
    page = tag("html", joined([_head(title, style, script), body]), lang="en")
    return f"<!doctype html>\n{page}\n"


def _head(title: str, style: str, script: str) -> Html:
    """The head, whose policy lets only this style and this script through."""
    policy = (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}';"
        " img-src 'none'; base-uri 'none'; form-action 'none'"
    )
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("meta", name="generator", content=f"gptwright {__version__}"),
        tag("title", f"{title} · gptwright"),
        tag("style", Html(style)),
    )


def _navigation(sections: Sequence[tuple[str, str, Html]]) -> Html:
    links = [tag("li", tag("a", heading, href=f"#{name}")) for name, heading, _ in sections]
    return tag("nav", tag("ul", links), aria_label="Parts of this report")


def _section(name: str, heading: str, body: Html) -> Html:
    title = tag("h2", heading, id=f"{name}-heading")
    return tag("section", title, body, id=name, aria_labelledby=f"{name}-heading")


def _embedded(data: dict[str, Any]) -> Html:
    """JSON that no text in it can end: HTML looks for `</script` and `<!--` before it looks for quotes."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Html(text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029"))


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"sha256-{base64.b64encode(digest).decode('ascii')}"

"""The parts of a page that say what a run is: its numbers, findings, outlook, promise, samples and record."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from gptwright import units
from gptwright.diagnose.reading import Reading
from gptwright.diagnose.series import val_curve
from gptwright.facts import Fact
from gptwright.findings import Finding, Unknown
from gptwright.record.evidence import EventKind
from gptwright.report.html import Html, table, tag
from gptwright.report.material import Material, Sample
from gptwright.report.outcome import outcomes
from gptwright.report.run_facts import run_facts

# The names of facts as a page says them; what is not here is said with spaces for underscores.
SPOKEN: Mapping[str, str] = {
    "mfu": "MFU",
    "epochs": "passes over the data",
    "step_seconds": "time a step",
    "last_step": "last step",
    "train_loss": "last training loss",
    "eval_train_loss": "last training loss, evaluated",
    "val_loss": "last validation loss",
    "achieved_flops": "achieved",
    "peak_flops": "this device's peak",
    "mfu_peak_flops": "peak behind the logged MFU",
    "tokens_per_second": "speed",
    "tokens_per_step": "tokens a step",
    "peak_memory_bytes": "most memory in use",
}


def numbers_section(reading: Reading) -> Html:
    """The run in numbers, each with where it comes from."""
    peak = reading.log.header.get("peak_memory_bytes") if reading.log is not None else None
    val = val_curve(reading)
    best = [val.fact(val.best)] if val.best is not None else []
    facts = [*run_facts(reading), *best, *([peak] if peak is not None else [])]
    last = len(facts) - len(best) - (peak is not None)
    tiles = [
        _tile(fact, f"best validation, step {val.step[val.best]:,}" if best and at == last else None)
        for at, fact in enumerate(facts)
    ]
    return tag("dl", tiles, class_="numbers")


def _tile(fact: Fact, name: str | None) -> Html:
    said = name or SPOKEN.get(fact.name, fact.name.replace("_", " "))
    return tag(
        "div",
        tag("dt", said),
        tag("dd", fact.text, class_="value"),
        tag("dd", f"{fact.origin}: {fact.reason}", class_="from"),
    )


def findings_section(findings: Sequence[Finding], unknown: Sequence[Unknown]) -> Html:
    """Findings with causes, actions and evidence; then what could not be known."""
    if not findings and not unknown:
        return tag("p", "No rule has anything to say of this record.")
    return tag(
        "div",
        tag("ul", [_finding(finding) for finding in findings], class_="findings") if findings else None,
        _unknown(unknown) if unknown else None,
        class_="tables",
    )


def _finding(finding: Finding) -> Html:
    causes = [tag("li", f"{cause.text} ({cause.confidence})") for cause in finding.causes]
    return tag(
        "li",
        tag(
            "h3",
            tag("span", str(finding.severity), class_="severity"),
            tag("span", finding.id, class_="mono"),
            tag("span", str(finding.confidence), class_="confidence"),
        ),
        tag("p", finding.message),
        [tag("p", "Possible causes:"), tag("ul", causes)] if causes else None,
        [_action(action.text, action.settings) for action in finding.actions],
        tag(
            "details",
            tag(
                "summary",
                f"Evidence ({len(finding.evidence)})",
                tag("span", f" of {finding.id}", class_="spoken"),
            ),
            tag("ul", [tag("li", _evidence(fact)) for fact in finding.evidence], class_="evidence"),
        )
        if finding.evidence
        else None,
        class_=f"card finding {finding.severity}",
    )


def _action(text: str, settings: Mapping[str, object]) -> Html:
    """An option is a word of its own, so that no line ends within one."""
    options = [tag("code", f"--{name}={value}", class_="set") for name, value in settings.items()]
    return tag("p", "Do: ", text, *(part for option in options for part in (" ", option)))


def _evidence(fact: Fact) -> Iterable[Html | str]:
    place = f" ({fact.source})" if fact.source not in ("", "derived") else ""
    return [f"{fact.name} = ", tag("b", fact.text), f", {fact.origin}: {fact.reason}{place}"]


def _unknown(unknown: Sequence[Unknown]) -> Html:
    items = [tag("li", f"{item.question} It needs {item.missing}.") for item in unknown]
    return tag("div", tag("h3", "What the record does not tell"), tag("ul", items))


def outlook_section(material: Material) -> Html | None:
    """Where the run is heading and what would pay, where its own curve says so."""
    forecast, planned = material.forecast, material.reading.progress.planned_steps
    if forecast is None or (forecast.planned_end is None and not forecast.options):
        return None
    end = forecast.planned_end
    rows = []
    for option in forecast.options:
        cost = units.duration(option.hours * 3600) if option.hours is not None else "–"
        rows.append((False, [option.text, units.span(*option.gain), cost]))
    return tag(
        "div",
        tag(
            "p",
            f"At the planned step {planned.number:,.0f} the {forecast.curve.name.replace('_', ' ')} will be",
            f" about {end.likely:.3f}; {end.low:.3f} to {end.high:.3f} in nine of ten such runs.",
        )
        if end is not None and planned is not None
        else None,
        table(
            "What would pay next",
            ["what", "nats less #", "time at this run's speed #"],
            rows,
            hint="Of the run's own curve and the differences of scaling laws.",
        )
        if rows
        else None,
    )


def promise_section(material: Material) -> Html | None:
    """What the plan promised when the run was started or gone on with last, and what came."""
    promise, log = material.recorded.get("promise"), material.reading.log
    if not isinstance(promise, Mapping) or log is None:
        return None
    # Each start makes its promise anew, and it holds for the steps of that start alone.
    starts = max((event.line for event in log.events if event.kind is EventKind.RESUME), default=0)
    val, rate = val_curve(material.reading), log.train.tokens_per_second[log.train.line > starts]
    memory = log.header.get("peak_memory_bytes")
    rows = outcomes(
        promise,
        tokens_per_second=float(np.nanmedian(rate)) if np.isfinite(rate).any() else None,
        peak_memory_bytes=memory.number if memory is not None else None,
        best_val_loss=float(val.value.min()) if len(val) and val.name == "val_loss" else None,
    )
    if not rows:
        return None
    return table(
        "What the plan promised at the last start, and what came of it",
        ["quantity", "promised #", "low to high #", "came #", "of the band #"],
        [
            (
                row.place in ("below", "above"),
                [row.name, row.likely, row.band or "–", row.came, row.place or "–"],
            )
            for row in rows
        ],
    )


def samples_section(samples: Sequence[Sample]) -> Html | None:
    """What the run said, the newest open."""
    if not samples:
        return None
    blocks = [
        tag(
            "details",
            tag("summary", f"{sample.checkpoint}{' (its beginning)' if sample.cut else ''}"),
            tag("pre", sample.text, tabindex="0", role="region", aria_label=f"Sample of {sample.checkpoint}"),
            open=sample is samples[-1],
        )
        for sample in samples
    ]
    return tag("div", blocks)


def record_section(material: Material) -> Html:
    """Which record this page is a view of, and the machine it came from."""
    log, recorded = material.reading.log, material.recorded
    rows: list[list[str]] = [["read from", material.reading.evidence.path]]
    if log is not None:
        rows.append(["log", f"{log.format.name}, {log.path}"])
        rows.append(["lines", f"{log.lines_read:,} read, {log.lines_skipped:,} damaged and skipped"])
        rows.append(["a training line's loss is", str(log.format.train_loss)])
        rows += [[f"met: {what}", f"{count:,}"] for what, count in log.hazards.items()]
    machine = recorded.get("machine")
    for name, value in (machine if isinstance(machine, Mapping) else {}).items():
        rows.append([str(name).replace("_", " "), _said(str(name), value)])
    dataset = recorded.get("dataset")
    if isinstance(dataset, Mapping):
        rows.append(["dataset", f"{dataset.get('name')}, fingerprint {dataset.get('fingerprint')}"])
    rows += [[f"stated: {name}", fact.text] for name, fact in material.reading.evidence.stated.items()]
    return table("The record behind this page", ["what", "value"], [(False, row) for row in rows])


def _said(name: str, value: object) -> str:
    return units.size(value) if name.endswith("_bytes") and isinstance(value, int | float) else str(value)

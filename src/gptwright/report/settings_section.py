"""The settings of a run as a table: what was changed on top, the defaults folded away below it."""

from collections.abc import Iterator
from dataclasses import dataclass

from gptwright.config.schema import FIELDS
from gptwright.facts import Fact
from gptwright.report.html import Html, table, tag
from gptwright.report.material import Material

COLUMNS = ["setting", "value", "default", "from"]


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting with the default that it has where nobody sets it.

    Attributes:
        name: of the field.
        value: as text.
        default: as text; empty where there is no such field here.
        place: who set it.
        changed: whether it is another than the default.
    """

    name: str
    value: str
    default: str
    place: str
    changed: bool


def settings_section(material: Material) -> Html | None:
    """What differs from the defaults, with its place; then everything else."""
    settings = list(_settings(material))
    if not settings:
        return None
    preset = any(s.place.startswith("preset") for s in settings)
    changed = [(preset and not s.place.startswith("preset"), _cells(s)) for s in settings if s.changed]
    hint = "Shaded: set beside the preset." if any(beside for beside, _ in changed) else ""
    same = [(False, _cells(s)) for s in settings if not s.changed]
    return tag(
        "div",
        table("What differs from the defaults", COLUMNS, changed, hint=hint)
        if changed
        else tag("p", "Every setting has its default."),
        tag(
            "details",
            tag("summary", f"{len(same)} settings with their default"),
            table("As by default", COLUMNS, same),
        )
        if same
        else None,
        class_="tables",
    )


def _cells(setting: Setting) -> list[str | Html]:
    return [tag("code", setting.name), setting.value, setting.default or "–", setting.place]


def _settings(material: Material) -> Iterator[Setting]:
    """Of our own run those of run.json, which remember their source; else those of the config and the log."""
    told = material.recorded.get("facts")
    recorded = {
        str(fact.get("name")): (str(fact.get("text")), fact.get("value"), str(fact.get("reason")))
        for fact in (told if isinstance(told, list) else ())
        if isinstance(fact, dict)
    }
    if recorded:
        for name in FIELDS:
            if name in recorded:
                text, value, place = recorded[name]
                default = FIELDS[name].default
                yield Setting(name, text, _text(default), place, value != default)
        return
    evidence = material.reading.evidence
    echoed = evidence.log.settings if evidence.log is not None else {}
    given: dict[str, Fact] = {**echoed, **(evidence.config.settings if evidence.config is not None else {})}
    for name, fact in given.items():
        known = name in FIELDS
        default = FIELDS[name].default if known else None
        yield Setting(
            name, fact.text, _text(default) if known else "", fact.reason, not known or fact.value != default
        )


def _text(value: object) -> str:
    return "–" if value is None else str(value)

"""The core type: a value that knows where it comes from.

Planner, trainer and diagnosis speak in facts, and a number without an origin does not reach a person.
An automatic choice (device, dtype, compile or not) is a fact too: its value, and in `reason` why.
"""

from dataclasses import dataclass
from enum import StrEnum

from gptwright import units

Value = float | int | str | bool | None


class Origin(StrEnum):
    """Where a value comes from."""

    MEASURED = "measured"  # here, now
    LOGGED = "logged"  # a line of a log
    CONFIGURED = "configured"  # a config file, an option, a default, or what a person states
    TABLED = "tabled"  # a table that names its source
    DERIVED = "derived"  # arithmetic on other facts
    ASSUMED = "assumed"  # nothing says it


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One value with its unit and origin.

    Attributes:
        name: the field's standard term, such as `tokens_per_step`.
        value: what it is, in base units.
        text: the value as a person reads it.
        origin: where it comes from.
        reason: the line, formula, measurement or rule behind it.
        unit: the base unit, as `units.text` knows it; empty for words and plain numbers.
        source: the exact place, in the form that scripts read: `log:LINE`, `config:FIELD`, `fact:FIELD`,
            `table:NAME`, `derived`; empty where the origin alone says it.
    """

    name: str
    value: Value
    text: str
    origin: Origin
    reason: str
    unit: str = ""
    source: str = ""

    @property
    def number(self) -> float:
        """The value of a fact that holds a number."""
        assert isinstance(self.value, int | float), self
        return self.value

    @property
    def line(self) -> int:
        """The line of the log, from 1, that a logged fact stands in."""
        assert self.source.startswith("log:"), self
        return int(self.source.removeprefix("log:"))


def logged(name: str, value: Value, line: int, *, unit: str = "") -> Fact:
    """A value that line `line` (counted from 1) of a log says."""
    return _fact(name, value, unit, Origin.LOGGED, f"line {line} of the log", f"log:{line}")


def configured(name: str, value: Value, *, place: str = "", unit: str = "") -> Fact:
    """A value that the config sets to field `name`; `place` is its file and line."""
    return _fact(name, value, unit, Origin.CONFIGURED, place or "config", f"config:{name}")


def stated(name: str, value: Value, *, unit: str = "") -> Fact:
    """A value that a person states beside the log: facts.toml or an option."""
    return _fact(name, value, unit, Origin.CONFIGURED, "stated", f"fact:{name}")


def tabled(name: str, value: Value, table: str, reason: str, *, unit: str = "") -> Fact:
    """A value from table `table`, whose source is `reason`."""
    return _fact(name, value, unit, Origin.TABLED, reason, f"table:{table}")


def derived(name: str, value: Value, formula: str, *, unit: str = "") -> Fact:
    """A value that `formula` gives from other facts."""
    return _fact(name, value, unit, Origin.DERIVED, formula, "derived")


def assumed(name: str, value: Value, reason: str, *, unit: str = "") -> Fact:
    """A value that nothing says, taken because of `reason`."""
    return _fact(name, value, unit, Origin.ASSUMED, reason, "table:defaults")


def _fact(  # noqa: PLR0917 - the constructors above are its only callers
    name: str, value: Value, unit: str, origin: Origin, reason: str, source: str
) -> Fact:
    text = units.text(value, unit)
    return Fact(name=name, value=value, text=text, origin=origin, reason=reason, unit=unit, source=source)

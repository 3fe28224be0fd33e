"""The core type: a value that knows where it comes from.

Planner, trainer and diagnosis speak in facts, and a number without an origin does not reach a person.
An automatic choice (device, dtype, compile or not) is a fact too: its value, and in `reason` why.
"""

from dataclasses import dataclass
from enum import StrEnum


class Origin(StrEnum):
    """Where a value comes from."""

    MEASURED = "measured"  # here, now
    LOGGED = "logged"  # a line of a log
    CONFIGURED = "configured"  # a config file, an option, or a default
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
    """

    name: str
    value: float | int | str | bool | None
    text: str
    origin: Origin
    reason: str

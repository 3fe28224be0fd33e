"""The numbers that data lines hold: what each looks like, which column it fills, and in which unit."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from gptwright.record.arrays import Booleans, Floats

# Bounded, so that no line can make a pattern or a number explode.
INTEGER = r"\d{1,12}"
REAL = r"[-+]?\d{1,12}(?:\.\d{1,20})?(?:[eE][-+]?\d{1,2})?"
POSITIVE = REAL.removeprefix("[-+]?")
LOSS = rf"[-+]?(?:{POSITIVE}|nan|NaN|NAN|inf|Inf|Infinity)"
GROUPED = r"(?:\d{1,3}(?:,\d{3}){1,5}|\d{1,15})(?:\.\d{1,20})?"

Known = Callable[[Floats], Booleans]


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One number on a data line.

    Attributes:
        column: the column of the table that it fills; empty where it is only passed over.
        pattern: what it looks like.
        scale: what the printed value is multiplied by.
        known: which printed values mean that the trainer knows it; None: all.
    """

    column: str
    pattern: str = REAL
    scale: float = 1.0
    known: Known | None = None


def _not_negative(printed: Floats) -> Booleans:
    return printed >= 0


def _positive(printed: Floats) -> Booleans:
    return printed > 0


FIELDS: Mapping[str, Field] = MappingProxyType(
    {
        "step": Field(column="step", pattern=INTEGER),
        "planned_steps": Field(column="planned_steps", pattern=INTEGER),
        "micro_step": Field(column="micro_step", pattern=INTEGER),
        "loss": Field(column="loss", pattern=LOSS),
        "train_loss": Field(column="train_loss", pattern=LOSS),
        "val_loss": Field(column="val_loss", pattern=LOSS),
        "carried_val_loss": Field(column="carried_val_loss", pattern=LOSS),
        "val_bpb": Field(column="val_bpb", pattern=LOSS),
        "train_standard_error": Field(column="train_standard_error"),
        "val_standard_error": Field(column="val_standard_error"),
        "seconds": Field(column="seconds", pattern=POSITIVE),
        "ms": Field(column="seconds", pattern=POSITIVE, scale=1e-3),
        "steps_per_second": Field(column="steps_per_second", pattern=POSITIVE),
        "clock_seconds": Field(column="clock", pattern=POSITIVE),
        "clock_ms": Field(column="clock", pattern=POSITIVE, scale=1e-3),
        "tokens_per_second": Field(column="tokens_per_second", pattern=GROUPED),
        "mfu": Field(column="mfu"),
        # nanoGPT's -100 % before its fifth step, llm.c's for a device that it does not know
        "mfu_percent": Field(column="mfu", scale=1e-2, known=_not_negative),
        # nanochat's 0.00 for a device that it does not know
        "mfu_percent_or_zero": Field(column="mfu", scale=1e-2, known=_positive),
        "learning_rate": Field(column="learning_rate", pattern=LOSS),
        "grad_norm": Field(column="grad_norm", pattern=LOSS),
        # of plain prints: what a counter runs to, whether it is a bar's, and the epoch
        "of": Field(column="of"),
        "of_bar": Field(column="of_bar"),
        "epoch": Field(column="epoch", pattern=POSITIVE),
        "epochs": Field(column="epochs"),
        "tokens_seen": Field(column="tokens_seen", pattern=GROUPED),
        "micro_ms": Field(column="micro_seconds", pattern=POSITIVE, scale=1e-3),
        "sequences": Field(column="sequences", pattern=INTEGER),
        "skipped": Field(column="skipped", pattern=INTEGER),
        "memory_gib": Field(column="memory_bytes", scale=2.0**30),
        "memory_gb": Field(column="memory_bytes", scale=1e9),
        "_": Field(column="", pattern=rf"[-+]?{GROUPED}"),
    }
)

WHOLE_NUMBER = re.compile(r"\d{1,15}", re.ASCII)
REAL_NUMBER = re.compile(REAL, re.ASCII)
PLACEHOLDER = re.compile(r"\{([a-z_0-9]*[a-z_])\}")


def whole_number(text: str) -> int:
    """The integer that a text is.

    Raises:
        ValueError: it is none.
    """
    if WHOLE_NUMBER.fullmatch(text) is None:
        raise ValueError(f"{text!r} is no whole number")
    return int(text)


def real_number(text: str) -> float:
    """The finite number that a text is.

    Raises:
        ValueError: it is none.
    """
    if REAL_NUMBER.fullmatch(text) is None:
        raise ValueError(f"{text!r} is no number")
    return float(text)


def without_fields(template: str) -> list[str]:
    """The texts of a template between its fields."""
    return PLACEHOLDER.split(template)[::2]

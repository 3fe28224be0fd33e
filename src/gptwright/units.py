"""Numbers as people read them: counts, bytes, durations and rates.

Inside the program every quantity is in its SI base unit (seconds, bytes, FLOP/s) or a plain count; only
here does it become text, or text such as `350M` and `8h` a number. Bytes use binary prefixes, because memory
is sold and reported in them.
"""

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

SCALES: Mapping[str, float] = MappingProxyType(
    {"": 1.0}
    | dict.fromkeys(("k", "thousand"), 1e3)
    | dict.fromkeys(("m", "million"), 1e6)
    | dict.fromkeys(("b", "g", "billion"), 1e9)
    | dict.fromkeys(("t", "trillion"), 1e12)
)
AMOUNT = re.compile(
    r"\s*([+-]?(?:\d{1,3}(?:[,_]\d{3})+|\d{1,30})(?:\.\d{0,20})?(?:e[+-]?\d{1,3})?|[+-]?\.\d{1,20})"
    rf"\s*({'|'.join(sorted(filter(None, SCALES), key=len, reverse=True))})?"
    r"\s*(?:tok(?:en)?s?|param(?:eter)?s?)?\s*",
    re.IGNORECASE,
)
HOURS: Mapping[str, float] = MappingProxyType(
    {"d": 24.0, "day": 24.0, "h": 1.0, "hr": 1.0, "hour": 1.0}
    | dict.fromkeys(("m", "min", "minute"), 1 / 60)
    | dict.fromkeys(("s", "sec", "second"), 1 / 3600)
)
TIME_PART = re.compile(
    r"\s*(\d{1,12}(?:\.\d{1,12})?)\s*(days?|d|hours?|hrs?|h|minutes?|mins?|m|seconds?|secs?|s)(?![a-z])",
    re.IGNORECASE,
)


def parse_count(text: str) -> float:
    """The number that a person wrote: `1e9`, `10_000`, `350M`, `9.04B`, `300 million`, `10B tokens`.

    Raises:
        ValueError: it is no number.
    """
    found = AMOUNT.fullmatch(text)
    if found is None:
        return float(text)
    number, scale = found[1].replace(",", "").replace("_", ""), SCALES[(found[2] or "").lower()]
    # 9.04 × 1e9 is not whole in floating point, and was meant to be.
    value = float(number) * scale
    return float(round(value)) if scale > 1 and abs(value - round(value)) < 1e-3 else value


def parse_hours(text: str) -> float:
    """The hours that a person wrote: `8`, `8h`, `90min`, `1d12h`, `2 days`.

    Raises:
        ValueError: it is no time.
    """
    parts = TIME_PART.findall(text)
    if not parts:
        return float(text)
    if TIME_PART.sub("", text).strip():
        raise ValueError(text)
    return sum(float(number) * HOURS[unit.lower().rstrip("s") or "s"] for number, unit in parts)


def count(value: float) -> str:
    """A count in the form nanoGPT prints parameters: `0.80M`, `123.59M`, `7.60B`, `512`."""
    for scale, suffix in ((1e12, "T"), (1e9, "B"), (1e6, "M")):
        if abs(value) >= scale or (suffix == "M" and abs(value) >= 1e5):
            return f"{value / scale:.2f}{suffix}"
    return f"{value:,.0f}"


def counted(number: int, noun: str, plural: str = "") -> str:
    """How many there are of something: `1 document`, `2,000 documents`, `3 stretches`."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def ratio(value: float) -> str:
    """How often one thing is in another, to two digits or a whole number: `2,386`, `62`, `1.9`, `0.02`."""
    return f"{value:,.0f}" if abs(value) >= 10 else f"{value:.2g}"


def size(number_of_bytes: float) -> str:
    """Bytes with a binary prefix: `512 B`, `3.1 MiB`, `11.6 GiB`."""
    value = float(number_of_bytes)
    for prefix in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{value:.0f} B" if prefix == "B" else f"{value:.1f} {prefix}"
        value /= 1024
    return f"{value:.1f} TiB"


def duration(seconds: float) -> str:
    """Seconds as a person says them: `8.40 ms`, `2.3 s`, `4 min 05 s`, `3 h 12 min`, `6 d 04 h`, `149 d`."""
    if seconds < 1:
        return f"{seconds * 1000:.2f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    if whole < 100 * 86400:
        return f"{whole // 86400} d {whole % 86400 // 3600:02d} h"
    return f"{round(seconds / 86400):,} d"


def flops_rate(flops_per_second: float) -> str:
    """FLOP/s with a decimal prefix: `187 GFLOP/s`, `40.2 TFLOP/s`."""
    if flops_per_second >= 1e12:
        return f"{flops_per_second / 1e12:.1f} TFLOP/s"
    return f"{flops_per_second / 1e9:.1f} GFLOP/s"


def span(low: float, high: float) -> str:
    """From one number to another with two digits; one number where these are the same."""
    return f"{low:.2f}" if f"{low:.2f}" == f"{high:.2f}" else f"{low:.2f} to {high:.2f}"


def percent(fraction: float) -> str:
    """A fraction from 0 to 1 as `38.2 %`."""
    return f"{fraction * 100:.1f} %"


def text(value: float | str | bool | None, unit: str) -> str:
    """A value of `unit` as a person reads it.

    Units: `tokens`, `parameters`, `bytes`, `seconds`, `FLOP/s`, `FLOP/token`, `tokens/s`, `nats`,
    `fraction` (shown as percent), or any other word, which is put behind the number.
    """
    if value is None:
        return "–"
    if isinstance(value, bool | str):
        return str(value)
    if unit in FORMS:
        return FORMS[unit](value)
    number = f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
    return f"{number} {unit}".strip()


def _tokens(value: float) -> str:
    return f"{value:,.0f}" if abs(value) < 1e6 else count(value)


FORMS: Mapping[str, Callable[[float], str]] = MappingProxyType(
    {
        "tokens": _tokens,
        "parameters": count,
        "bytes": size,
        "seconds": duration,
        "FLOP/s": flops_rate,
        "FLOP/token": lambda value: f"{value / 1e6:,.1f} MFLOP",
        "tokens/s": lambda value: f"{value:,.0f} tokens/s",
        "nats": lambda value: f"{value:.4f}",
        "fraction": percent,
    }
)

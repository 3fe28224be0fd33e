"""Numbers as people read them: counts, bytes, durations and rates.

Inside the program every quantity is in its SI base unit (seconds, bytes, FLOP/s) or a plain count; only
here does it become text. Bytes use binary prefixes, because memory is sold and reported in them.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType


def count(value: float) -> str:
    """A count in the form nanoGPT prints parameters: `0.80M`, `123.59M`, `7.60B`, `512`."""
    for scale, suffix in ((1e12, "T"), (1e9, "B"), (1e6, "M")):
        if abs(value) >= scale or (suffix == "M" and abs(value) >= 1e5):
            return f"{value / scale:.2f}{suffix}"
    return f"{value:,.0f}"


def size(number_of_bytes: float) -> str:
    """Bytes with a binary prefix: `512 B`, `3.1 MiB`, `11.6 GiB`."""
    value = float(number_of_bytes)
    for prefix in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{value:.0f} B" if prefix == "B" else f"{value:.1f} {prefix}"
        value /= 1024
    return f"{value:.1f} TiB"


def duration(seconds: float) -> str:
    """Seconds as a person says them: `8.40 ms`, `2.3 s`, `4 min 05 s`, `3 h 12 min`, `6 d 04 h`."""
    if seconds < 1:
        return f"{seconds * 1000:.2f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 86400} d {whole % 86400 // 3600:02d} h"


def flops_rate(flops_per_second: float) -> str:
    """FLOP/s with a decimal prefix: `187 GFLOP/s`, `40.2 TFLOP/s`."""
    if flops_per_second >= 1e12:
        return f"{flops_per_second / 1e12:.1f} TFLOP/s"
    return f"{flops_per_second / 1e9:.1f} GFLOP/s"


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

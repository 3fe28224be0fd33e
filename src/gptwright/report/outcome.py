"""A plan's promise beside what came of it, as rows for the terminal and the page."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

from gptwright import units


@dataclass(frozen=True, slots=True)
class Outcome:
    """One quantity.

    Attributes:
        name: what it is.
        likely: as promised.
        band: low to high, as promised; empty where no band was.
        came: what it was.
        place: `inside`, `below` or `above` the band; empty where no band was.
    """

    name: str
    likely: str
    band: str
    came: str
    place: str


def outcomes(
    promise: Mapping[str, Any],
    *,
    tokens_per_second: float | None,
    peak_memory_bytes: float | None,
    best_val_loss: float | None,
) -> list[Outcome]:
    """Rows of everything that was promised and came.

    Args:
        promise: as a run keeps it in run.json, see `plan.promise`.
        tokens_per_second: the median of the training lines since the promise.
        peak_memory_bytes: of the process that finished the run.
        best_val_loss: of all evaluations.
    """
    rows = []
    speed, loss, memory = (
        promise.get(name) for name in ("tokens_per_second", "val_loss", "peak_memory_bytes")
    )
    if _is_band(speed) and tokens_per_second is not None:
        rows.append(_banded("tokens/s", speed, tokens_per_second, "{:,.0f}", "{:,.0f}"))
    if isinstance(memory, int | float) and peak_memory_bytes:
        rows.append(Outcome("memory", units.size(memory), "", units.size(peak_memory_bytes), ""))
    if _is_band(loss) and best_val_loss is not None:
        rows.append(_banded("best val loss", loss, best_val_loss, "{:.3f}", "{:.4f}"))
    return rows


def _is_band(value: object) -> TypeGuard[Mapping[str, float]]:
    """Whether a promise has its three numbers; run.json may have been edited."""
    return isinstance(value, Mapping) and all(
        isinstance(value.get(end), int | float) for end in ("low", "likely", "high")
    )


def _banded(name: str, band: Mapping[str, float], came: float, form: str, came_form: str) -> Outcome:
    return Outcome(
        name,
        form.format(band["likely"]),
        f"{form.format(band['low'])} to {form.format(band['high'])}",
        came_form.format(came),
        "below" if came < band["low"] else "above" if came > band["high"] else "inside",
    )

"""Steps that a line does not print, or that something glued to it has changed, from the lines around it."""

import numpy as np

from gptwright.record.arrays import Floats, Integers
from gptwright.record.readers.tables import Rows, only_down


def step_before(train: Rows, lines: Integers) -> Floats:
    """The step of the last training line before each of these lines; NaN before the first."""
    at = np.searchsorted(train.line, lines) - 1
    return np.where(at >= 0, np.append(train["step"], np.nan)[at], np.nan)


def step_after(train: Rows, lines: Integers) -> Floats:
    """The step of the first training line after each of these lines; NaN after the last."""
    return np.append(train["step"], np.nan)[np.searchsorted(train.line, lines, side="right")]


def fill_from_next(train: Rows, evals: Rows) -> None:
    """For trainers that evaluate before the step that they print next; after the last line, one step on."""
    _fill(evals, step_printed_after(train, evals), step_printed_before(train, evals) + 1)


def fill_from_previous(train: Rows, evals: Rows) -> None:
    """For trainers that count from 1 and evaluate after the step printed before; at the start, one back."""
    _fill(evals, step_printed_before(train, evals), step_printed_after(train, evals) - 1)


def step_printed_before(train: Rows, evals: Rows) -> Floats:
    """The step of the line printed before each evaluation, also where the newest line stands first."""
    return step_after(train, evals.line) if only_down(train["step"]) else step_before(train, evals.line)


def step_printed_after(train: Rows, evals: Rows) -> Floats:
    """The step of the line printed after each evaluation, likewise."""
    return step_before(train, evals.line) if only_down(train["step"]) else step_after(train, evals.line)


def _fill(evals: Rows, first: Floats, else_second: Floats) -> None:
    step = evals["step"]
    step = np.where(np.isnan(step), first, step)
    evals["step"] = np.where(np.isnan(step), else_second, step)


def drop_glued_digits(train: Rows) -> int:
    """Drops rows whose step begins with digits that were typed: `33` before `410` is step 33410 of no run.

    Such a step is above both its neighbours, and without its first digits it lies between them.

    Returns:
        How many.
    """
    steps = train["step"]
    suspects = [
        at
        for at in np.flatnonzero(steps[1:-1] > np.maximum(steps[:-2], steps[2:])) + 1
        if steps[at - 1] < steps[at + 1] and _lies_between(steps[at], steps[at - 1], steps[at + 1])
    ]
    if suspects:
        kept = np.ones(len(train), np.bool_)
        kept[suspects] = False
        train.take(kept)
    return len(suspects)


def _lies_between(step: float, before: float, after: float) -> bool:
    digits = str(int(step))
    return any(before < int(digits[cut:]) < after for cut in range(1, len(digits)) if digits[cut] != "0")

"""Log lines with the step they belong to, so that parts of a log can be cut away or put in by step."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

HEADER = -1
Line = tuple[int, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What a trainer leaves: the lines of its log, and files that are no log."""

    lines: Sequence[Line] = ()
    files: Mapping[str, str] = field(default_factory=dict)


def header(*lines: str) -> list[Line]:
    """Lines that stand before the first step."""
    return [(HEADER, line) for line in lines]


def merged(train: Sequence[Line], evals: Sequence[Line]) -> list[Line]:
    """Both in the order of their steps, evaluations first where they meet; order within each is kept."""
    return sorted([*evals, *train], key=_step_of)


def _step_of(line: Line) -> int:
    return line[0]

"""The damage of real captures: what terminals, forums, editors and impatient fingers do to a log.

Each takes the lines of a log and returns them damaged. None changes a number into another that looks whole;
that would be another run.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from tests.simulator.truth import Truth

Lines = list[str]
WRAP_COLUMN = 100
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def damaged(lines: Sequence[str], hazards: Sequence[str], rng: np.random.Generator) -> str:
    """The text of a log with these hazards; line ends are part of them."""
    kept = list(lines)
    for name in hazards:
        kept = HAZARDS[name](kept, rng)
    end = "\r\n" if "crlf" in hazards else "\n"
    text = end.join(kept) + end
    if "truncated" in hazards:
        text = text[: -int(rng.integers(8, 22))]
    return text


def suited_hazards(truth: Truth) -> tuple[str, ...]:
    """Hazards that are met with this trainer's logs and leave its numbers readable."""
    if truth.variant == "file":
        return ("crlf", "truncated", "quoted")
    return SUITED.get(truth.format, ("crlf", "truncated"))


def _timestamps(lines: Lines, rng: np.random.Generator) -> Lines:
    start = int(rng.integers(0, 80_000))
    return [f"[2024-03-17 {_clock(start + 3 * number)}] {line}" for number, line in enumerate(lines)]


def _clock(seconds: int) -> str:
    seconds %= 86_400
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"


def _glued(lines: Lines, rng: np.random.Generator) -> Lines:
    """Keystrokes that the terminal echoed in front of a line."""
    kept = list(lines)
    for number in rng.choice(len(kept), size=min(3, len(kept)), replace=False):
        kept[number] = str(rng.choice(["B", "AAAAAAAA", "^C", "q"])) + kept[number]
    return kept


def _quoted(lines: Lines, rng: np.random.Generator) -> Lines:
    return [f"> {line}" for line in lines]


def _ansi(lines: Lines, rng: np.random.Generator) -> Lines:
    return [f"\x1b[32m{line}\x1b[0m" for line in lines]


def _wrapped(lines: Lines, rng: np.random.Generator) -> Lines:
    pieces = []
    for line in lines:
        pieces += [line[at : at + WRAP_COLUMN] for at in range(0, max(1, len(line)), WRAP_COLUMN)]
    return pieces


def _without_colours(lines: Lines, rng: np.random.Generator) -> Lines:
    """Colour codes stripped by whatever the log was piped through; the writer's lines carry them."""
    return [COLOUR.sub("", line) for line in lines]


def _newest_first(lines: Lines, rng: np.random.Generator) -> Lines:
    """Turned round, as a console shows a stream or a spreadsheet is sorted."""
    return lines[::-1]


def _appended(lines: Lines, rng: np.random.Generator) -> Lines:
    """Behind a first attempt that was given up, into the same file."""
    given_up = int(rng.uniform(0.1, 0.4) * len(lines))
    return [*lines[:given_up], *lines]


def _unchanged(lines: Lines, rng: np.random.Generator) -> Lines:
    return lines


SUITED: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "nanogpt": ("crlf", "truncated", "timestamps", "glued", "quoted", "ansi"),
        "nanochat": ("crlf", "truncated", "wrapped"),
        "llama2c": ("crlf", "truncated", "timestamps", "quoted"),
        "build-nanogpt": ("crlf", "truncated", "timestamps", "quoted"),
        "hf": ("crlf",),
        "torchtitan": ("crlf", "without-colours"),
        "hf-state": (),
        "ours": (),
    }
)
HAZARDS: Mapping[str, Callable[[Lines, np.random.Generator], Lines]] = MappingProxyType(
    {
        "timestamps": _timestamps,
        "glued": _glued,
        "quoted": _quoted,
        "ansi": _ansi,
        "wrapped": _wrapped,
        "without-colours": _without_colours,
        "newest-first": _newest_first,
        "appended": _appended,
        "crlf": _unchanged,
        "truncated": _unchanged,
    }
)

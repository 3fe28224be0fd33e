"""Damages logs at random: everything that a disk, a terminal, a pipe, a forum or a person may do to them.

A mutation takes the lines of a log and returns other bytes. Several are put on top of each other. All of it
follows from one seed, so that a finding can be had again.
"""

import random
from collections.abc import Callable, Sequence

Lines = list[str]
Mutation = Callable[[Lines, random.Random], Lines]

JUNK = (
    "AAAAAAAA",
    "^C",
    "33",
    "B",
    "nan",
    "-",
    "1e9",
    ".",
    ",",
    "%",
    "\x1b[32m",
    "\r",
    "\x00",
    "\t",
    "é",
    "٣",
    "[",
)


def mutated(lines: Sequence[str], other: Sequence[str], rng: random.Random) -> bytes:
    """A damaged log.

    Args:
        lines: of a log.
        other: of another log, for what gets mixed up with it.
        rng: where all choices come from.
    """
    begin = rng.randrange(max(1, len(lines) - 10))
    damaged = list(lines[begin : begin + rng.randrange(8, 30)])
    for _ in range(rng.randrange(1, 4)):
        mutation = rng.choice(MUTATIONS)
        damaged = mutation(damaged, rng) if mutation is not _mixed else _mixed(damaged, rng, other)
    text = rng.choice(("\n", "\n", "\n", "\n", "\r\n", "\r")).join(damaged) + rng.choice(("\n", ""))
    data = bytearray(text.encode(rng.choice(("utf-8",) * 12 + ("utf-16", "utf-8-sig"))))
    if rng.random() < 0.3:
        for _ in range(rng.randrange(1, 12)):
            if data:
                data[rng.randrange(len(data))] = rng.randrange(256)
    if rng.random() < 0.2:
        del data[rng.randrange(len(data) + 1) :]
    return bytes(data)


def _some(lines: Lines, rng: random.Random) -> list[int]:
    return [rng.randrange(len(lines)) for _ in range(rng.randrange(1, 5))] if lines else []


def _cut(lines: Lines, rng: random.Random) -> Lines:
    for at in _some(lines, rng):
        lines[at] = lines[at][: rng.randrange(len(lines[at]) + 1)]
    return lines


def _cut_front(lines: Lines, rng: random.Random) -> Lines:
    for at in _some(lines, rng):
        lines[at] = lines[at][rng.randrange(len(lines[at]) + 1) :]
    return lines


def _cut_all_at_one_column(lines: Lines, rng: random.Random) -> Lines:
    column = rng.randrange(10, 90)
    return [line[:column] for line in lines]


def _doubled(lines: Lines, rng: random.Random) -> Lines:
    return [line for line in lines for _ in range(rng.choice((1, 1, 1, 2, 3)))]


def _shuffled(lines: Lines, rng: random.Random) -> Lines:
    rng.shuffle(lines)
    return lines


def _dropped(lines: Lines, rng: random.Random) -> Lines:
    return [line for line in lines if rng.random() < 0.7]


def _glued(lines: Lines, rng: random.Random) -> Lines:
    for at in _some(lines, rng):
        lines[at] = rng.choice(JUNK) + lines[at]
    return lines


def _inserted(lines: Lines, rng: random.Random) -> Lines:
    for at in _some(lines, rng):
        place = rng.randrange(len(lines[at]) + 1)
        lines[at] = lines[at][:place] + rng.choice(JUNK) + lines[at][place:]
    return lines


def _without_digits(lines: Lines, rng: random.Random) -> Lines:
    for at in _some(lines, rng):
        lines[at] = "".join(sign for sign in lines[at] if not sign.isdigit() or rng.random() < 0.6)
    return lines


def _other_digits(lines: Lines, rng: random.Random) -> Lines:
    for at in _some(lines, rng):
        lines[at] = "".join(rng.choice("0123456789") if sign.isdigit() else sign for sign in lines[at])
    return lines


def _spliced(lines: Lines, rng: random.Random) -> Lines:
    """The front of one line with the back of another, as two processes print at once."""
    for at in _some(lines, rng):
        other = lines[rng.randrange(len(lines))]
        lines[at] = lines[at][: rng.randrange(len(lines[at]) + 1)] + other[rng.randrange(len(other) + 1) :]
    return lines


def _joined(lines: Lines, rng: random.Random) -> Lines:
    """Line feeds get lost."""
    text = "\n".join(lines)
    return "".join("" if sign == "\n" and rng.random() < 0.2 else sign for sign in text).split("\n")


def _wrapped(lines: Lines, rng: random.Random) -> Lines:
    column = rng.randrange(15, 110)
    strip = rng.random() < 0.3
    pieces = [line[at : at + column] for line in lines for at in range(0, max(1, len(line)), column)]
    return [piece.rstrip() for piece in pieces] if strip else pieces


def _broken(lines: Lines, rng: random.Random) -> Lines:
    """Line feeds in the middle of lines, at no column in particular."""
    for at in _some(lines, rng):
        place = rng.randrange(len(lines[at]) + 1)
        lines[at] = lines[at][:place] + "\n" + lines[at][place:]
    return "\n".join(lines).split("\n")


def _prefixed(lines: Lines, rng: random.Random) -> Lines:
    prefix = rng.choice(("[2023-03-17 09:12:05] ", "> ", "[rank0]: ", "INFO:root:", "0: ", "  ", "- "))
    return [prefix + line for line in lines]


def _repeated(lines: Lines, rng: random.Random) -> Lines:
    """A line that goes on and on."""
    for at in _some(lines, rng)[:1]:
        begin = rng.randrange(len(lines[at]) + 1)
        part = lines[at][begin : begin + rng.randrange(1, 40)]
        lines[at] = lines[at][:begin] + part * rng.randrange(2, 400) + lines[at][begin:]
    return lines


def _mixed(lines: Lines, rng: random.Random, other: Sequence[str] = ()) -> Lines:
    """Lines of another log in between."""
    return [
        line
        for own in lines
        for line in ((own, rng.choice(other)) if other and rng.random() < 0.3 else (own,))
    ]


MUTATIONS: tuple[Mutation, ...] = (
    _cut,
    _cut_front,
    _cut_all_at_one_column,
    _doubled,
    _shuffled,
    _dropped,
    _glued,
    _inserted,
    _without_digits,
    _other_digits,
    _spliced,
    _joined,
    _wrapped,
    _broken,
    _prefixed,
    _repeated,
    _mixed,
)

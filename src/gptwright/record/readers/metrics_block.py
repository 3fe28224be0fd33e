"""Training lines of a metrics file, thousands at a time: a million of them in a second and a half.

Our own record prints every number with all its digits, so its lines have no common form (`runs`), and a JSON
decoder must read them. msgspec decodes a line into the seven fields that a row has and passes over the
others; it is four times as quick as `json` into dictionaries (measured: 2.8 against 12 µs a line on a busy
core). Its MessagePack encoder then lays the numbers of all lines side by side, each eight bytes at a fixed
place, which numpy takes as they are: half the time of a list of them. What is not accepted whole, and every
line of another kind, is left to the reader of single lines.
"""

from collections.abc import Iterator
from itertools import chain
from operator import attrgetter
from typing import Literal

import msgspec
import numpy as np

from gptwright.record.arrays import Floats

# No run has as many steps, and no loss, norm or rate is as large.
MOST_STEPS, LARGEST = 1e12, 1e300
# How `MetricsFile` begins a training line, up to the first letter of its kind, which no other kind has.
BEGINNING, LETTER = '{"v": 1, "kind": "', ord("t")
LINE_FEED = ord("\n")
# Lines around a damaged one that are not worth another try at once.
FEW_LINES = 30


class TrainLine(msgspec.Struct, gc=False):
    """A kind and the fields of a row; null and absent are None."""

    kind: Literal["train"]
    step: float
    loss: float
    seconds: float | None = None
    tokens_per_second: float | None = None
    mfu: float | None = None
    lr: float | None = None
    grad_norm: float | None = None


FIELDS = TrainLine.__struct_fields__[1:]
_DECODER = msgspec.json.Decoder(TrainLine)
_ENCODER = msgspec.msgpack.Encoder()
_values = attrgetter(*FIELDS)


def _layout() -> np.dtype[np.void]:
    """Where the numbers are in an encoded line that has all of them: eight bytes each, the highest first."""
    line = _ENCODER.encode(TrainLine("train", *map(float, range(len(FIELDS)))))
    # In front of a number stand its name and a byte that says double.
    offsets = [line.index(name.encode()) + len(name) + 1 for name in FIELDS]
    return np.dtype(
        {"names": FIELDS, "formats": [">f8"] * len(FIELDS), "offsets": offsets, "itemsize": len(line)}
    )


_LAYOUT = _layout()


def train_runs(text: str) -> Iterator[tuple[int, int, Floats]]:
    """Where runs of plain training lines begin and end in a text, each with its rows."""
    # One byte a letter, so that places are those of the text; other letters stand in no number.
    data = text.encode("latin-1", "replace")
    codes = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(codes == LINE_FEED) + 1
    places = np.concatenate([[0], ends])
    letters = codes[np.minimum(places[:-1] + len(BEGINNING), len(codes) - 1)]
    edges = np.flatnonzero(np.diff(letters == LETTER, prepend=False, append=False))
    for first, behind in edges.reshape(-1, 2):
        yield from _runs(memoryview(data), places[first : behind + 1].tolist())


def _runs(data: memoryview, places: list[int]) -> Iterator[tuple[int, int, Floats]]:
    """The same for lines that begin at all places but the last; a damaged one parts them."""
    lines, begin, end = len(places) - 1, places[0], places[-1]
    rows = train_rows(data[begin:end])
    # The decoder takes two records that a crash has glued into one line for two lines.
    if rows is not None and len(rows) == lines:
        yield begin, end, rows
    elif lines > FEW_LINES:
        yield from _runs(data, places[: lines // 2 + 1])
        yield from _runs(data, places[lines // 2 :])


def train_rows(data: bytes | memoryview) -> Floats | None:
    """Rows of `FIELDS`; None if one line is no whole training line of finite numbers."""
    try:
        lines = _DECODER.decode_lines(data)
    except msgspec.DecodeError:
        return None
    rows = _rows(lines)
    whole = (rows[:, 0] >= 0) & (rows[:, 0] < MOST_STEPS) & np.isfinite(rows[:, 1])
    return rows if whole.all() and not (np.abs(rows) >= LARGEST).any() else None


def _rows(lines: list[TrainLine]) -> Floats:
    encoded = _ENCODER.encode(lines)
    numbers = len(lines) * _LAYOUT.itemsize
    # A null is shorter than a number, and a list's length takes at most five bytes in front.
    if 0 < len(encoded) - numbers <= 5:
        table = np.frombuffer(encoded, _LAYOUT, offset=len(encoded) - numbers)
        rows = np.empty((len(table), len(FIELDS)))
        for at, name in enumerate(FIELDS):
            rows[:, at] = table[name]
        return rows
    # numpy makes NaN of None.
    values = np.array(list(chain.from_iterable(map(_values, lines))), dtype=np.float64)
    return values.reshape(-1, len(FIELDS))

"""Finds duplicates and draws the validation split over a whole corpus, from tables of hashes on disk.

A table has one row a document, or a piece of one, with the blake2b-128 of its text. Both questions are
answered for one range of hashes after the other, in ascending order, so that memory does not grow with the
corpus: four million rows at a time take some 350 MB, and FineWeb-Edu's sample of ten billion tokens (ten
million documents, 400 MB of tables) is three ranges.

Of equal documents the first in the order of the corpus is kept. The validation split takes the smallest
hashes until a fraction of the bytes is reached: a function of the texts alone, whatever their order.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gptwright.errors import DataError

ROWS_AT_A_TIME = 4_000_000

DOCUMENT_ROW = np.dtype([("high", "<u8"), ("low", "<u8")])
PIECE_ROW = np.dtype([("high", "<u8"), ("low", "<u8"), ("bytes", "<u4"), ("document", "<u4")])

Rows = npt.NDArray[Any]
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Table:
    """The hashes of a unit: two files of numpy, one row a document and one row a piece."""

    documents: Path
    pieces: Path

    def load_documents(self) -> Rows:
        """Rows of `DOCUMENT_ROW`, mapped."""
        rows: Rows = np.load(self.documents, mmap_mode="r", allow_pickle=False)
        return rows

    def load_pieces(self) -> Rows:
        """Rows of `PIECE_ROW`, mapped."""
        rows: Rows = np.load(self.pieces, mmap_mode="r", allow_pickle=False)
        return rows


def exact_duplicates(tables: Sequence[Table], *, whole: bool) -> list[Numbers]:
    """For each unit, the numbers of the documents whose text occurred before.

    Args:
        tables: one a unit, in the order of the corpus.
        whole: whether a document is one piece; then only the tables of pieces are read.
    """
    found: list[list[Numbers]] = [[] for _ in tables]
    for low, high in _ranges(tables):
        keys, units, numbers = [], [], []
        for unit, table in enumerate(tables):
            rows = table.load_pieces() if whole else table.load_documents()
            inside = np.flatnonzero((rows["high"] >= low) & (rows["high"] <= high))
            keys.append(rows[["high", "low"]][inside].astype(DOCUMENT_ROW))
            units.append(np.full(len(inside), unit, dtype=np.int32))
            numbers.append(inside.astype(np.int32))
        for unit, repeated in _repeated(np.concatenate(keys), np.concatenate(units), np.concatenate(numbers)):
            found[unit].append(repeated)
    return [np.sort(np.concatenate(parts)) if parts else np.empty(0, dtype=np.int64) for parts in found]


@dataclass(frozen=True)
class Draw:
    """The tables of a corpus in its order, and the split that follows from them.

    Attributes:
        tables: one a unit.
        dropped: for each unit, the numbers of the documents that are left out, ascending.
    """

    tables: Sequence[Table]
    dropped: Sequence[Numbers]

    @cached_property
    def all_bytes(self) -> int:
        """The bytes of all documents."""
        return sum(int(table.load_pieces()["bytes"].sum(dtype=np.int64)) for table in self.tables)

    @cached_property
    def kept_bytes(self) -> int:
        """The bytes of all documents that are not left out."""
        return sum(
            int(self._kept(unit, table.load_pieces())["bytes"].sum(dtype=np.int64))
            for unit, table in enumerate(self.tables)
        )

    def limit(self, fraction: float) -> bytes:
        """The largest hash of the validation split that holds `fraction` of the bytes.

        Raises:
            DataError: there are not two different pieces.
        """
        wanted = fraction * self.kept_bytes
        largest = self._largest()
        reached = 0
        before: bytes | None = None
        for low, high in _ranges(self.tables):
            keys, sizes = self._sorted_pieces(low, high)
            totals = reached + np.cumsum(sizes)
            at = int(np.searchsorted(totals, wanted))
            if at < len(keys) and _as_bytes(keys[at]) != largest:
                return _as_bytes(keys[at])
            # Something must be left for training: the largest is never taken.
            below = min(at, len(keys)) - 1
            if below >= 0 and _as_bytes(keys[below]) == largest:
                below -= 1
            before = _as_bytes(keys[below]) if below >= 0 else before
            if at < len(keys):
                break
            reached = int(totals[-1]) if len(keys) else reached
        if before is None:
            raise self._one_text()
        return before

    def _largest(self) -> bytes:
        """The largest hash of all."""
        largest = b""
        for unit, table in enumerate(self.tables):
            rows = self._kept(unit, table.load_pieces())
            if len(rows):
                high = rows["high"].max()
                low = rows["low"][rows["high"] == high].max()
                largest = max(largest, int(high).to_bytes(8, "big") + int(low).to_bytes(8, "big"))
        return largest

    def _sorted_pieces(self, low: int, high: int) -> tuple[Rows, Numbers]:
        """Different keys in a range, ascending, and the bytes that each has in all."""
        chosen = []
        for unit, table in enumerate(self.tables):
            rows = self._kept(unit, table.load_pieces())
            chosen.append(rows[(rows["high"] >= low) & (rows["high"] <= high)])
        rows = np.concatenate(chosen)
        rows = rows[np.lexsort((rows["low"], rows["high"]))]
        starts = np.flatnonzero(~_equal_to_previous(rows))
        if not len(starts):
            return rows[:0][["high", "low"]], np.empty(0, dtype=np.int64)
        return rows[["high", "low"]][starts], np.add.reduceat(rows["bytes"].astype(np.int64), starts)

    def _kept(self, unit: int, rows: Rows) -> Rows:
        dropped = self.dropped[unit]
        return rows[~np.isin(rows["document"], dropped)] if len(dropped) else rows

    def _one_text(self) -> DataError:
        pieces = sum(len(table.load_pieces()) for table in self.tables)
        return DataError(
            f"the corpus cannot be split: it has {self.all_bytes:,} bytes in {pieces:,} piece(s), of which"
            f" {min(1, pieces)} differ",
            why="training and validation must not hold the same text, and neither may be empty",
            fix="give more text, or use --split nanogpt, which takes the last 10 % as it is",
        )


def _ranges(tables: Sequence[Table]) -> Iterator[tuple[int, int]]:
    """Ranges of hashes that hold few enough rows each."""
    rows = sum(len(table.load_pieces()) for table in tables)
    bits = max(0, (max(1, rows) - 1) // ROWS_AT_A_TIME).bit_length()
    width = 2 ** (64 - bits)
    for start in range(0, 2**64, width):
        yield start, start + width - 1


def rows_of(keys: Sequence[bytes]) -> Rows:
    """Hashes of 16 bytes as rows of `DOCUMENT_ROW`; numbers compare as the bytes do."""
    pairs = np.frombuffer(b"".join(keys), dtype=">u8").reshape(-1, 2)
    rows = np.empty(len(pairs), dtype=DOCUMENT_ROW)
    rows["high"], rows["low"] = pairs[:, 0], pairs[:, 1]
    return rows


def _as_bytes(key: Rows) -> bytes:
    return int(key["high"]).to_bytes(8, "big") + int(key["low"]).to_bytes(8, "big")


def _equal_to_previous(rows: Rows) -> npt.NDArray[np.bool_]:
    equal = np.zeros(len(rows), dtype=bool)
    equal[1:] = (rows["high"][1:] == rows["high"][:-1]) & (rows["low"][1:] == rows["low"][:-1])
    return equal


def _repeated(keys: Rows, units: Numbers, numbers: Numbers) -> Iterator[tuple[int, Numbers]]:
    """By unit, the numbers of rows whose key another row before them has."""
    # lexsort is stable, so of equal keys the first in the corpus stays first.
    order = np.lexsort((keys["low"], keys["high"]))
    repeated = order[_equal_to_previous(keys[order])]
    for unit in np.unique(units[repeated]).tolist():
        yield unit, numbers[repeated[units[repeated] == unit]].astype(np.int64)

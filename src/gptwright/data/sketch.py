"""Sketches of documents, from which near-duplicates are found without comparing every two texts.

How alike two documents are is the Jaccard similarity of their sets of five-word runs: the runs that both
have, over those that either has. A MinHash signature of 128 numbers estimates it: two signatures agree at a
place with that probability (Broder, 1997), so that the standard error is √(J(1−J)/128), 0.035 at 0.8. The
signature is cut into bands, and documents that agree in a whole band are candidates (Leskovec, Rajaraman and
Ullman, Mining of Massive Datasets, chapter 3). FineWeb removes near-duplicates in this way, with five-word
runs too.

Words are runs of letters and digits in lower case, so layout and punctuation do not count. A text in a script
without spaces has few words, and there only close copies look alike.

Cost: 256 bytes of disk a document for the signature, and 4 a band. rensa, in Rust, hashes and takes minima.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt

from gptwright.data.pieces import content_hash
from gptwright.data.tokenizer_base import import_extra

PERMUTATIONS = 128
# With fewer words a run is common by chance, with more an edit in every sentence hides a copy.
RUN_WORDS = 5
# A band is as long as it may be so that a pair exactly at the threshold is a candidate with this probability.
FOUND = 0.99
# Below, half of what two documents hold is their own, and nearly every pair of a topic becomes a candidate.
LEAST_THRESHOLD = 0.5

_SEED = 1
_WORD = re.compile(r"\w+")
# Held at a time, so that one long document does not become millions of strings.
_WORDS_AT_A_TIME = 100_000
# An odd number with well-mixed bits (2^64 over the golden ratio), whose powers make one hash of several.
_MIX = 0x9E3779B97F4A7C15

Hashes = npt.NDArray[np.uint64]
Signature = npt.NDArray[np.uint16]
Bands = npt.NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class Sketches:
    """The sketches of a unit: two files, of signatures row by row and of band keys band by band."""

    signatures: Path
    bands: Path

    def load_bands(self) -> Bands:
        """The keys of all documents, mapped; shape (bands, documents)."""
        keys: Bands = np.load(self.bands, mmap_mode="r", allow_pickle=False)
        return keys

    def load_signatures(self, numbers: npt.NDArray[np.int64]) -> Signature:
        """The signatures of some documents of the unit; shape (numbers, PERMUTATIONS)."""
        mapped = np.memmap(self.signatures, dtype="<u2", mode="r").reshape(-1, PERMUTATIONS)
        rows: Signature = np.asarray(mapped[numbers])
        return rows


def rows_a_band(threshold: float) -> int:
    """The longest band in which a pair at the threshold still becomes a candidate."""
    for rows in range(PERMUTATIONS, 1, -1):
        if 1 - (1 - threshold**rows) ** (PERMUTATIONS // rows) >= FOUND:
            return rows
    return 1


def algorithm() -> int:
    """The version of the hashing, on which unfinished work depends.

    Raises:
        DataError: rensa is not installed.
    """
    rensa = import_extra("rensa", "finding near-duplicates", extra="data")
    return int(rensa.RMinHash.ALGORITHM_VERSION)


def signature_of(text: str) -> Signature:
    """The MinHash signature of a document's five-word runs; shape (PERMUTATIONS,).

    The low 16 bits of each minimum are kept: two that differ agree there once in 65,536 times.
    """
    from rensa import RMinHash

    runs = _run_hashes(text)
    digest = RMinHash.digest_matrix_from_flat_token_hashes(runs, [0, len(runs)], PERMUTATIONS, _SEED)
    return (np.array(digest.to_rows()[0], dtype=np.uint32) & 0xFFFF).astype("<u2")


def band_keys(signatures: Signature, rows: int) -> Bands:
    """A hash of each band of each signature; shape (documents, PERMUTATIONS // rows)."""
    bands = PERMUTATIONS // rows
    values = signatures[:, : bands * rows].astype(np.uint64).reshape(-1, bands, rows)
    return (_mixed(values) >> np.uint64(32)).astype("<u4")


def _run_hashes(text: str) -> Hashes:
    """A hash of every five words in a row; of all words where there are fewer."""
    words = np.concatenate([*_word_hashes(text), np.empty(0, np.uint64)])
    if not len(words):
        # Without words there is nothing to compare: alike is only what is equal.
        return np.frombuffer(content_hash(text.encode("utf-8"))[:8], dtype=np.uint64)
    return _mixed(np.lib.stride_tricks.sliding_window_view(words, min(RUN_WORDS, len(words))))


def _word_hashes(text: str) -> Iterator[Hashes]:
    from rensa import RMinHash

    words = (match.group() for match in _WORD.finditer(text.lower()))
    while some := list(islice(words, _WORDS_AT_A_TIME)):
        yield np.array(RMinHash.hash_token_sets([some])[0], dtype=np.uint64)


def _mixed(values: Hashes) -> Hashes:
    """One hash of the numbers along the last axis, in their order."""
    powers = np.array([pow(_MIX, place + 1, 2**64) for place in range(values.shape[-1])], dtype=np.uint64)
    mixed: Hashes = (values * powers).sum(axis=-1, dtype=np.uint64)
    return mixed


class SketchWriter:
    """Writes the sketches of a unit, document by document; a context manager.

    Args:
        sketches: the files to write.
        threshold: how alike near-duplicates are at least.
    """

    _HELD = 4096

    def __init__(self, sketches: Sketches, threshold: float) -> None:
        self._sketches = sketches
        self._rows = rows_a_band(threshold)
        self._file = sketches.signatures.open("wb")
        self._held: list[Signature] = []
        self._keys: list[Bands] = []

    def __enter__(self) -> "SketchWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, text: str) -> None:
        """Sketches the next document."""
        self._held.append(signature_of(text))
        if len(self._held) == self._HELD:
            self._flush()

    def finish(self) -> None:
        """Makes both files durable."""
        self._flush()
        self._file.flush()
        os.fsync(self._file.fileno())
        empty = np.empty((0, PERMUTATIONS // self._rows), dtype="<u4")
        with self._sketches.bands.open("wb") as file:
            np.save(file, np.ascontiguousarray(np.concatenate([*self._keys, empty]).T), allow_pickle=False)
            file.flush()
            os.fsync(file.fileno())

    def _flush(self) -> None:
        if self._held:
            signatures = np.stack(self._held)
            self._file.write(signatures.tobytes())
            self._keys.append(band_keys(signatures, self._rows))
            self._held = []

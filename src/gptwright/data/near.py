"""Near-duplicates of a corpus, from the sketches of its documents on disk.

Documents that agree in a band are compared by their signatures: the first of them in the order of the corpus
with all others, then the first of those that were not like it with the rest, and so on. What is alike is
joined, and of joined documents the first is kept. So no two documents are kept that share a band and are
estimated to be as alike as the threshold: whichever is later was joined to something earlier. And as only
one of them is left, near-duplicates cannot be on two sides of the split.

One band at a time and, in a large corpus, one range of its keys after the other, so that memory does not grow
with the documents but for 5 bytes each.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from gptwright.data.draw import ROWS_AT_A_TIME, Numbers
from gptwright.data.sketch import PERMUTATIONS, Signature, Sketches

# Two signatures of 256 bytes each: some 50 MB at a time.
_PAIRS_AT_A_TIME = 100_000

Flags = npt.NDArray[np.bool_]


def near_duplicates(
    sketches: Sequence[Sketches], exact: Sequence[Numbers], threshold: float
) -> list[Numbers]:
    """For each unit, the numbers of the documents that are like one before them.

    Args:
        sketches: one a unit, in the order of the corpus.
        exact: for each unit, the documents that are left out already.
        threshold: how alike near-duplicates are at least, from 0 to 1.
    """
    search = _Search(sketches, exact, threshold)
    search.run()
    return search.found()


class _Search:
    """The documents of a corpus, numbered through, and which of them were joined."""

    def __init__(self, sketches: Sequence[Sketches], exact: Sequence[Numbers], threshold: float) -> None:
        self._sketches = sketches
        sizes = [unit.load_bands().shape[1] for unit in sketches]
        self._offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        # For each document the first of those that it was joined with.
        self._first = np.arange(self._offsets[-1], dtype=np.int32)
        self._left = np.ones(len(self._first), dtype=bool)
        for offset, numbers in zip(self._offsets, exact, strict=False):
            self._left[offset + numbers] = False
        self._needed = int(np.ceil(threshold * PERMUTATIONS - 1e-9))

    def run(self) -> None:
        """Goes through all bands."""
        for band in range(self._sketches[0].load_bands().shape[0]):
            for documents, groups in self._groups(band):
                self._join_alike(documents, groups)

    def found(self) -> list[Numbers]:
        """The documents that something earlier stands for, by unit."""
        later = np.flatnonzero(self._first != np.arange(len(self._first))).astype(np.int64)
        ends = np.searchsorted(later, self._offsets)
        return [
            later[start:end] - offset
            for start, end, offset in zip(ends[:-1], ends[1:], self._offsets[:-1], strict=True)
        ]

    def _groups(self, band: int) -> Iterator[tuple[Numbers, Numbers]]:
        """Documents that share a key with another, and their keys, sorted by key and then by document."""
        ranges = max(1, -(-len(self._first) // ROWS_AT_A_TIME))
        bounds = np.linspace(0, 2**32, ranges + 1).astype(np.int64)
        for low, high in pairwise(bounds.tolist()):
            keys, documents = self._inside(band, low, high)
            order = np.argsort(keys, kind="stable")
            keys, documents = keys[order], documents[order]
            same = np.zeros(len(keys) + 1, dtype=bool)
            same[1:-1] = keys[1:] == keys[:-1]
            shared = same[1:] | same[:-1]
            yield documents[shared], keys[shared]

    def _inside(self, band: int, low: int, high: int) -> tuple[Numbers, Numbers]:
        keys, documents = [], []
        for offset, unit in zip(self._offsets, self._sketches, strict=False):
            row = unit.load_bands()[band]
            inside = np.flatnonzero((row >= low) & (row < high) & self._left[offset : offset + len(row)])
            keys.append(row[inside].astype(np.int64))
            documents.append(offset + inside)
        return np.concatenate(keys), np.concatenate(documents)

    def _join_alike(self, documents: Numbers, groups: Numbers) -> None:
        """Compares the first of each group with the others until none is left."""
        while len(documents):
            begins = np.ones(len(groups), dtype=bool)
            begins[1:] = groups[1:] != groups[:-1]
            leaders = documents[begins][np.cumsum(begins) - 1][~begins]
            documents, groups = documents[~begins], groups[~begins]
            joined = self._first[leaders] == self._first[documents]
            alike = np.flatnonzero(~joined)[self._alike(leaders[~joined], documents[~joined])]
            self._join(leaders[alike], documents[alike])
            joined[alike] = True
            documents, groups = documents[~joined], groups[~joined]

    def _alike(self, one: Numbers, other: Numbers) -> Flags:
        """Which pairs have signatures that agree in enough places."""
        alike = np.empty(len(one), dtype=bool)
        for start in range(0, len(one), _PAIRS_AT_A_TIME):
            part = slice(start, start + _PAIRS_AT_A_TIME)
            agreeing = self._signatures(one[part]) == self._signatures(other[part])
            alike[part] = np.count_nonzero(agreeing, axis=1) >= self._needed
        return alike

    def _signatures(self, documents: Numbers) -> Signature:
        found = np.empty((len(documents), PERMUTATIONS), dtype=np.uint16)
        units = np.searchsorted(self._offsets, documents, side="right") - 1
        for unit in np.unique(units).tolist():
            inside = units == unit
            found[inside] = self._sketches[unit].load_signatures(documents[inside] - self._offsets[unit])
        return found

    def _join(self, one: Numbers, other: Numbers) -> None:
        """Makes the first document of all that are joined stand for each of them."""
        if not len(one):
            return
        stands, places = np.unique(self._first[np.stack([one, other])], return_inverse=True)
        pairs = places.reshape(2, -1)
        size = len(stands)
        graph = coo_array((np.ones(pairs.shape[1], dtype=bool), (pairs[0], pairs[1])), shape=(size, size))
        _, labels = connected_components(graph, directed=False)
        # `stands` ascends, so the first place of a label is its first document.
        _, firsts = np.unique(labels, return_index=True)
        renamed = np.arange(len(self._first), dtype=np.int32)
        renamed[stands] = stands[firsts][labels]
        self._first = renamed[self._first]

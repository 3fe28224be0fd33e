"""Which windows a step trains on, and which an evaluation reads.

A batch is a pure function of (seed, step, dataset): a resumed run, another cut into micro-batches or another
number of processes sees the same one. The random numbers are raw outputs of the counter-based generator
Philox with the seed and the step as its key; numpy guarantees that raw stream across versions, which it does
not for `Generator.integers` or `permutation`.

`random` draws window starts as nanoGPT does, so some tokens are seen twice before others are seen once.
`epoch` tiles each shard and passes through the tiles in a shuffled order: each once per pass. Its shuffle
takes 16 bytes and about 0.1 µs for each window at the start of a pass.
"""

from functools import lru_cache
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from gptwright.data.splits import IdArray, TokenSplit, id_out_of_range, require_windows

SamplingMode = Literal["random", "epoch"]
Int64Array = npt.NDArray[np.int64]

# Linux maps what it has cached around each page that is read, up to some 300 KiB: 40 MB until it is given
# back.
_WINDOWS_HELD = 128

# Streams of one seed that must not coincide.
_BATCHES, _SHUFFLES, _EVALUATION = 0, 1, 2


class WindowSampler:
    """Draws the global batch of each step.

    Args:
        split: where windows are taken from.
        block_size: tokens in a window.
        sequences_per_step: windows in a batch, over all micro-batches and processes.
        seed: selects the sequence of batches.
        mode: `random` or `epoch`.
        vocab_limit: every id must be below it; the split's own vocabulary if None.
        rows: which windows of each batch are read; a process of several reads its share alone.

    Raises:
        DataError: not one window fits.
    """

    def __init__(
        self,
        split: TokenSplit,
        *,
        block_size: int,
        sequences_per_step: int,
        seed: int,
        mode: SamplingMode,
        vocab_limit: int | None = None,
        rows: slice = slice(None),
    ) -> None:
        require_windows(split, block_size)
        self._rows = rows
        self.windows_per_epoch = window_count(split, block_size)
        self._mode = mode
        self._seed = seed
        self._sequences = sequences_per_step
        self._reader = WindowReader(split, block_size, vocab_limit or split.vocab_size)
        # nanoGPT's range: a start below n - block_size leaves room for the token that follows.
        self._starts = _Ranges(split, [max(0, len(shard.ids) - block_size) for shard in split.shards], 1)
        self._tiles = _tiles(split, block_size)
        # A batch may straddle two passes.
        self._order = lru_cache(maxsize=2)(self._shuffled)

    def batch(self, step: int) -> tuple[Int64Array, Int64Array]:
        """The inputs and targets of a step: x_NT and y_NT, each [rows, block_size].

        Raises:
            DataError: an id is outside the vocabulary.
        """
        return self._reader.read(self.starts(step)[self._rows])

    def starts(self, step: int) -> Int64Array:
        """Where the windows of a step start, as positions over all shards."""
        if self._mode == "random":
            raw = _raw(self._seed, step, _BATCHES, self._sequences)
            return self._starts.positions(_scaled(raw, self._starts.total))
        index = step * self._sequences + np.arange(self._sequences)
        passes, places = np.divmod(index, self.windows_per_epoch)
        tiles = np.empty(self._sequences, dtype=np.int64)
        for number in range(int(passes[0]), int(passes[-1]) + 1):
            inside = passes == number
            tiles[inside] = self._order(number)[places[inside]]
        return self._tiles.positions(tiles)

    def epochs_at(self, step: int) -> float:
        """How many passes over the split the first `step` steps are."""
        return step * self._sequences / self.windows_per_epoch

    def _shuffled(self, number: int) -> Int64Array:
        return np.argsort(_raw(self._seed, number, _SHUFFLES, self.windows_per_epoch), kind="stable")


class WindowReader:
    """Reads windows of one length by their starts, checking every id.

    Args:
        split: where they are read.
        block_size: tokens in a window.
        vocab_limit: every id must be below it.
    """

    def __init__(self, split: TokenSplit, block_size: int, vocab_limit: int) -> None:
        self._split = split
        self._limit = vocab_limit
        self._length = block_size + 1
        self._offsets = np.array(split.offsets, dtype=np.int64)
        # One row for each start, all views of the same memory: indexing it copies whole windows.
        self._windows = [_rows(shard.ids, self._length) for shard in split.shards]
        self._since_release = 0

    def read(self, starts: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Inputs and targets, each [len(starts), block_size]."""
        self._since_release += len(starts)
        if self._since_release > _WINDOWS_HELD:
            self._since_release = 0
            for shard in self._split.shards:
                shard.release()
        if len(self._windows) == 1:
            window_NT = self._windows[0][starts]
        else:
            shards = np.searchsorted(self._offsets, starts, side="right") - 1
            window_NT = np.empty((len(starts), self._length), dtype=self._windows[0].dtype)
            for index in np.unique(shards):
                here = shards == index
                window_NT[here] = self._windows[index][starts[here] - self._offsets[index]]
        if window_NT.size and int(window_NT.max()) >= self._limit:
            raise self._out_of_range(starts, window_NT)
        return window_NT[:, :-1].astype(np.int64), window_NT[:, 1:].astype(np.int64)

    def _out_of_range(self, starts: Int64Array, window_NT: IdArray) -> Exception:
        row, column = np.argwhere(window_NT >= self._limit)[0]
        position = int(starts[row] + column)
        index = int(np.searchsorted(self._offsets, position, side="right") - 1)
        token = int(window_NT[row, column])
        return id_out_of_range(
            self._split.shards[index], position - int(self._offsets[index]), token, self._limit
        )


def window_count(split: TokenSplit, block_size: int) -> int:
    """How many windows fit without overlap; each needs the token that follows it."""
    return _tiles(split, block_size).total


def evaluation_starts(split: TokenSplit, *, block_size: int, windows: int, seed: int) -> Int64Array:
    """A fixed set of windows without overlap, in order: all of them, or `windows` drawn by the seed.

    Raises:
        DataError: not one window fits.
    """
    require_windows(split, block_size)
    tiles = _tiles(split, block_size)
    chosen = np.arange(tiles.total)
    if windows < tiles.total:
        order = np.argsort(_raw(seed, 0, _EVALUATION, tiles.total), kind="stable")
        chosen = np.sort(order[:windows])
    return tiles.positions(chosen)


class _Ranges:
    """Numbers 0 … total-1 laid over the shards: `counts[i]` of them in shard i, `stride` tokens apart."""

    def __init__(self, split: TokenSplit, counts: list[int], stride: int) -> None:
        self._ends = np.cumsum(np.array(counts, dtype=np.int64))
        self._firsts = self._ends - counts
        self._offsets = np.array(split.offsets, dtype=np.int64)
        self._stride = stride
        self.total = int(self._ends[-1])

    def positions(self, numbers: Int64Array) -> Int64Array:
        if len(self._ends) == 1:
            return numbers * self._stride
        shards = np.searchsorted(self._ends, numbers, side="right")
        inside: Int64Array = (numbers - self._firsts[shards]) * self._stride
        return inside + self._offsets[shards]


def _tiles(split: TokenSplit, block_size: int) -> _Ranges:
    return _Ranges(split, [max(0, len(shard.ids) - 1) // block_size for shard in split.shards], block_size)


def _raw(seed: int, number: int, stream: int, size: int) -> npt.NDArray[np.uint64]:
    key = np.array([seed % 2**64, number], dtype=np.uint64)
    counter = np.array([0, 0, 0, stream], dtype=np.uint64)
    # key= and counter= set the cipher's state itself, so distinct (seed, number) are distinct streams.
    raw: npt.NDArray[np.uint64] = np.random.Philox(key=key, counter=counter).random_raw(size)
    return raw


def _scaled(raw: npt.NDArray[np.uint64], total: int) -> Int64Array:
    # 53 random bits as a float in [0, 1); the bias is below total / 2**53.
    return ((raw >> np.uint64(11)) * (total / 2**53)).astype(np.int64)


def _rows(ids: IdArray, length: int) -> npt.NDArray[Any]:
    if len(ids) < length:
        return np.empty((0, length), dtype=ids.dtype)
    return np.lib.stride_tricks.sliding_window_view(ids, length)

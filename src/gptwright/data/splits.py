"""One split of a token dataset as memory-mapped shards, and the checks that guard its use.

Positions are counted over all shards in order; nothing is ever read across a shard's end.
"""

import mmap
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gptwright.data.manifest import Dtype
from gptwright.errors import DataError

# What is scanned at a trainer's start without being asked: below half a second from memory.
SCAN_BYTES = 256 * 1024 * 1024
_CHUNK_TOKENS = 4 * 1024 * 1024

IdArray = npt.NDArray[np.unsignedinteger[Any]]


@dataclass(frozen=True, slots=True)
class Shard:
    """A file of ids.

    Attributes:
        path: the file.
        ids: its content, memory-mapped.
        header_bytes: what lies in the file before them.
        mapping: the memory map, where there is one.
    """

    path: Path
    ids: IdArray
    header_bytes: int = 0
    mapping: mmap.mmap | None = None

    def release(self) -> None:
        """Gives the pages that were read back to the system, so that resident memory does not grow.

        They stay in its cache as long as there is room, so reading them again costs next to nothing.
        """
        if self.mapping is not None and hasattr(mmap, "MADV_DONTNEED"):
            self.mapping.madvise(mmap.MADV_DONTNEED)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenSplit:
    """One side of a dataset.

    Attributes:
        name: `train` or `val`.
        shards: its files, in order.
        vocab_size: every id should be below it.
        text_bytes: the UTF-8 size of what the ids encode, or None if the dataset does not say.
    """

    name: str
    shards: tuple[Shard, ...]
    vocab_size: int
    text_bytes: int | None

    @property
    def tokens(self) -> int:
        """How many ids there are."""
        return sum(len(shard.ids) for shard in self.shards)

    @property
    def offsets(self) -> list[int]:
        """The position of each shard's first id."""
        return [0, *accumulate(len(shard.ids) for shard in self.shards)][:-1]

    def read(self, start: int, length: int) -> IdArray:
        """Ids from a position on, without copying them; they must lie in one shard.

        Raises:
            IndexError: they do not.
        """
        for offset, shard in zip(self.offsets, self.shards, strict=True):
            if offset <= start and start + length <= offset + len(shard.ids) and length >= 0:
                return shard.ids[start - offset : start - offset + length]
        raise IndexError(f"ids {start} to {start + length} of split {self.name} are not in one shard")


def map_shard(path: Path, dtype: Dtype, *, expected_tokens: int | None, header_bytes: int = 0) -> Shard:
    """Maps a file of ids after comparing its size with what it should be.

    Args:
        path: the file.
        dtype: how an id is stored.
        expected_tokens: how many there should be, if that is known.
        header_bytes: what lies before them.

    Raises:
        DataError: the file is missing, or its size is wrong.
    """
    item = np.dtype(dtype).newbyteorder("<")
    try:
        size = path.stat().st_size - header_bytes
    except OSError:
        raise DataError(
            f"shard {path} is missing",
            why="the dataset is incomplete",
            fix="copy the whole folder again, or prepare the dataset again with `gptwright prepare`",
        ) from None
    if expected_tokens is not None and size != expected_tokens * item.itemsize:
        raise _damaged(
            path,
            f"{size:,} bytes, where {expected_tokens:,} {dtype} ids are {expected_tokens * item.itemsize:,}",
        )
    if size % item.itemsize:
        raise _damaged(path, f"{size:,} bytes, not a whole number of {item.itemsize}-byte ids")
    if size == 0:
        return Shard(path, np.empty(0, dtype=item))
    with path.open("rb") as file:
        mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    ids: IdArray = np.frombuffer(mapping, dtype=item, offset=header_bytes)
    return Shard(path, ids, header_bytes, mapping)


def check_ids(split: TokenSplit, limit: int, *, scan_bytes: int | None = SCAN_BYTES) -> None:
    """Refuses a split with an id that a vocabulary of `limit` does not have.

    Args:
        split: what is scanned.
        limit: every id must be below it.
        scan_bytes: how much is scanned, from the start; None for everything.

    Raises:
        DataError: an id is out of range; shard, position and id are named.
    """
    left = scan_bytes
    for shard in split.shards:
        for start in range(0, len(shard.ids), _CHUNK_TOKENS):
            shard.release()
            chunk = shard.ids[start : start + _CHUNK_TOKENS]
            if left is not None:
                chunk = chunk[: max(0, left) // chunk.itemsize]
                left -= chunk.nbytes
            if len(chunk) and int(chunk.max()) >= limit:
                at = int((chunk >= limit).argmax())
                raise id_out_of_range(shard, start + at, int(chunk[at]), limit)
        shard.release()


def id_out_of_range(shard: Shard, position: int, token: int, limit: int) -> DataError:
    """The error for an id that the vocabulary does not have."""
    return DataError(
        f"shard {shard.path} has token id {token} at position {position:,}, outside the vocabulary of"
        f" {limit:,} (0 to {limit - 1:,})",
        why="such an id would read past the embedding's end; the file is damaged or was made with another"
        " tokenizer",
        fix="prepare the dataset again, or give the vocabulary it was made with",
    )


def require_windows(split: TokenSplit, block_size: int) -> None:
    """Refuses a split in which not one window of `block_size` tokens and its next token fits.

    Raises:
        DataError: no shard is long enough.
    """
    longest = max((len(shard.ids) for shard in split.shards), default=0)
    if longest > block_size:
        return
    side = "validation" if split.name == "val" else "training"
    raise DataError(
        f"the {side} split has {split.tokens:,} tokens, block_size is {block_size:,}",
        why=f"one window needs {block_size + 1:,} tokens in one shard: block_size and the token that follows",
        fix=f"--block_size={longest - 1}" + " or less, or prepare more text"
        if longest > 1
        else "prepare more text",
    )


def _damaged(path: Path, seen: str) -> DataError:
    return DataError(
        f"shard {path} is truncated or damaged: {seen}",
        why="training would silently read other data than was prepared",
        fix="copy the file again, or prepare the dataset again with `gptwright prepare`",
    )

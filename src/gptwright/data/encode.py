"""The second reading of a unit: its documents become ids, on the side of the split where they belong.

A worker writes the ids of a unit into two files, one a side, and says with a small record that they are
whole; `assemble` puts the units together in order. So the result is the same for any number of workers, and a
kill loses the units that were under way, each a third of a minute's work at most.

Only a megabyte of ids is held, whatever the unit's size.
"""

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

import numpy as np

from gptwright.data.folder import TOKENIZER_NAME
from gptwright.data.manifest import Dtype
from gptwright.data.sources.corpus import Tally, Unit
from gptwright.data.stretches import SplitName, Stretch, hash_stretches, in_blocks
from gptwright.data.tokenizer_base import Ids, Tokenizer
from gptwright.data.tokenizers import load_tokenizer
from gptwright.data.unit_records import PartRecord, PartSide, write_record
from gptwright.data.work import Workspace
from gptwright.errors import DataError

SPLITS: tuple[SplitName, SplitName] = ("train", "val")

_HELD_TOKENS = 500_000
# Enough text for one call of a tokenizer to be cheap.
_BATCH_CHARACTERS = 500_000


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodeTask:
    """What a worker needs to encode a unit.

    Attributes:
        index: the number of the unit.
        unit: what is read.
        corpus: what it is a part of, for messages.
        space: where the ids go; its dataset holds the tokenizer.
        tokenizer_sha256: which tokenizer that is.
        dtype: how an id is stored.
        separator_id: written after each stretch but the last, or None for nothing.
        limit: the largest hash of the validation side.
        piece_size: documents are cut into pieces of this size; None keeps them whole.
        lines: what the first reading of the unit saw.
        train_room: how many training tokens are needed at most, or None for all.
    """

    index: int
    unit: Unit
    corpus: str
    space: Workspace
    tokenizer_sha256: str
    dtype: Dtype
    separator_id: int | None
    limit: bytes
    piece_size: int | None
    lines: tuple[str, ...]
    train_room: int | None


def encode_unit(task: EncodeTask) -> PartRecord:
    """Encodes one unit and leaves its ids and record on the disk.

    Raises:
        DataError: the unit is not what it was at the first reading, or the tokenizer lacks a character.
    """
    tally = Tally()
    stretches = hash_stretches(
        task.unit.read(tally),
        limit=task.limit,
        size=task.piece_size,
        dropped=read_dropped(task.space, task.index),
    )
    tokenizer = _tokenizer(task.space.dataset / TOKENIZER_NAME, task.tokenizer_sha256)
    with Part(
        task.space, task.index, tokenizer, task.dtype, task.separator_id, train_room=task.train_room
    ) as part:
        part.write(stretches)
        if tuple(tally.lines) != task.lines:
            raise changed(task.corpus)
        return part.finish(tally)


def changed(name: str) -> DataError:
    """The error for a corpus that is not what it was at the first reading."""
    return DataError(
        f"the corpus {name} changed while it was read",
        why="the validation split was drawn from what it held before",
        fix="wait until nothing writes to it, then run the command again",
    )


def write_dropped(space: Workspace, index: int, numbers: Iterable[int]) -> None:
    """Says which documents of a unit are duplicates; nothing where there are none."""
    path = space.unit_path(index, "dropped.npy")
    array = np.array(list(numbers), dtype=np.int64)
    if len(array):
        np.save(path, array, allow_pickle=False)
    else:
        path.unlink(missing_ok=True)


def read_dropped(space: Workspace, index: int) -> frozenset[int]:
    """Which documents of a unit are duplicates."""
    path = space.unit_path(index, "dropped.npy")
    return frozenset(np.load(path, allow_pickle=False).tolist()) if path.exists() else frozenset()


@lru_cache(maxsize=1)
def _tokenizer(path: Path, sha256: str) -> Tokenizer:
    made = load_tokenizer(path)
    assert made.sha256 == sha256
    return made


class Part:
    """The ids of a unit while they are written; a context manager that lets go of its files.

    Args:
        space: where they go.
        index: the number of the unit.
        tokenizer: makes the ids.
        dtype: how an id is stored.
        separator_id: written after each stretch but the last.
        train_room: how many training tokens are needed at most, or None for all.
        on_characters: told how many characters were encoded since the last call.
    """

    def __init__(
        self,
        space: Workspace,
        index: int,
        tokenizer: Tokenizer,
        dtype: Dtype,
        separator_id: int | None,
        *,
        train_room: int | None = None,
        on_characters: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._space = space
        self._index = index
        self._tokenizer = tokenizer
        self._on_characters = on_characters
        self._sides = {
            name: _Side(
                space.unit_path(index, f"{name}.ids"),
                dtype,
                separator_id,
                room=train_room if name == "train" else None,
            )
            for name in SPLITS
        }
        self._keys: dict[SplitName, list[bytes]] = {"train": [], "val": []}
        self._goes_on: SplitName | None = None
        self._last: SplitName | None = None

    def __enter__(self) -> "Part":
        return self

    def __exit__(self, *_: object) -> None:
        for side in self._sides.values():
            side.close()

    def write(self, stretches: Iterable[Stretch]) -> None:
        """Encodes the stretches of the unit, a batch at a time."""
        for batch in _batches(in_blocks(stretches)):
            needed = {name for name, side in self._sides.items() if not side.full}
            encoded = iter(_encoded(self._tokenizer, [s for s in batch if s.split in needed]))
            for stretch in batch:
                self._place(stretch)
                if stretch.split in needed:
                    self._sides[stretch.split].add(stretch, next(encoded))
            self._on_characters(sum(len(stretch.text) for stretch in batch))

    def _place(self, stretch: Stretch) -> None:
        if self._last is None and not stretch.starts:
            self._goes_on = stretch.split
        elif self._last is not None and stretch.starts:
            self._sides[self._last].end_stretch()
        self._last = stretch.split
        self._keys[stretch.split] += stretch.keys

    def finish(self, tally: Tally) -> PartRecord:
        """Makes everything durable and says what was written."""
        # Eight of the sixteen bytes are enough to look for overlap: one false alarm in a billion corpora.
        first = [key[:8] for name in ("val", "train") for key in self._keys[name]]
        path = self._space.unit_path(self._index, "keys.npy")
        counts = np.array([len(self._keys["val"])], dtype="<u8")
        np.save(path, np.concatenate([counts, np.frombuffer(b"".join(first), dtype="<u8")]))
        record = PartRecord(
            index=self._index,
            tally=tally,
            sides={name: side.finish() for name, side in self._sides.items()},
            goes_on=self._goes_on,
            last=self._last,
            cut=self._sides["train"].full,
        )
        write_record(self._space.unit_path(self._index, "part.json"), record)
        return record


class _Side:
    """The ids of one side of a unit."""

    def __init__(self, path: Path, dtype: Dtype, separator_id: int | None, *, room: int | None) -> None:
        self._file: BinaryIO = path.open("wb")
        self._dtype = np.dtype(dtype).newbyteorder("<")
        self._separator = None if separator_id is None else np.array([separator_id], dtype=np.uint32)
        self._digest = hashlib.sha256()
        self._held: list[Ids] = []
        self._held_tokens = 0
        self._tokens = self._starts = self._text_bytes = self._max_id = 0
        self._room = room

    @property
    def full(self) -> bool:
        """Whether no more ids are needed."""
        return self._room is not None and self._tokens + self._held_tokens >= self._room

    def add(self, stretch: Stretch, ids: Ids) -> None:
        self._starts += stretch.starts
        self._text_bytes += len(stretch.text.encode("utf-8"))
        self._append(ids)

    def end_stretch(self) -> None:
        if self._separator is not None:
            self._append(self._separator)

    def _append(self, ids: Ids) -> None:
        if self._room is not None:
            ids = ids[: max(0, self._room - self._tokens - self._held_tokens)]
        self._held.append(ids)
        self._held_tokens += len(ids)
        if self._held_tokens >= _HELD_TOKENS:
            self._flush()

    def _flush(self) -> None:
        if not self._held_tokens:
            return
        ids = np.concatenate(self._held)
        raw = ids.astype(self._dtype).tobytes()
        self._file.write(raw)
        self._digest.update(raw)
        self._tokens += len(ids)
        self._max_id = max(self._max_id, int(ids.max()))
        self._held, self._held_tokens = [], 0

    def finish(self) -> PartSide:
        self._flush()
        self._file.flush()
        os.fsync(self._file.fileno())
        self.close()
        return PartSide(
            tokens=self._tokens,
            starts=self._starts,
            text_bytes=self._text_bytes,
            max_id=self._max_id,
            sha256=self._digest.hexdigest(),
        )

    def close(self) -> None:
        try:
            self._file.close()
        except OSError:
            # On a full disk the buffer cannot be flushed; the descriptor is closed regardless.
            return


def _batches(stretches: Iterable[Stretch]) -> Iterator[list[Stretch]]:
    batch: list[Stretch] = []
    characters = 0
    for stretch in stretches:
        batch.append(stretch)
        characters += len(stretch.text)
        if characters >= _BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def _encoded(tokenizer: Tokenizer, stretches: list[Stretch]) -> list[Ids]:
    try:
        return tokenizer.encode_all([stretch.text for stretch in stretches])
    except DataError:
        pass
    # Once more one by one, to name the document.
    return [_encode(tokenizer, stretch) for stretch in stretches]


def _encode(tokenizer: Tokenizer, stretch: Stretch) -> Ids:
    try:
        return tokenizer.encode(stretch.text)
    except DataError as error:
        raise DataError(
            f"in a part of {stretch.name}: {error.problem}", why=error.why, fix=error.fix
        ) from None

"""Puts the ids of all units together, in order, into the shards of `train` and `val`.

It runs in the parent while workers encode: as soon as a unit and all before it are there, its ids are copied.
A unit's own file is removed when every shard that holds a part of it is finished, so that the disk holds
little twice. Finished shards are noted with their hashes; a second run verifies them and goes on behind them.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from pydantic import TypeAdapter

from gptwright.data.encode import SPLITS
from gptwright.data.manifest import Dtype, ShardRecord, SplitRecord
from gptwright.data.shards import ShardWriter
from gptwright.data.stretches import SplitName
from gptwright.data.tokenizer_base import Tokenizer
from gptwright.data.unit_records import PartRecord, hash_file
from gptwright.data.work import Workspace
from gptwright.files import replace_bytes

_COPY_TOKENS = 4_000_000
_NOTES: TypeAdapter[list[ShardRecord]] = TypeAdapter(list[ShardRecord])


class Assembly:
    """The two splits while they are put together.

    Args:
        space: where the units' ids are, and the dataset that is made of them.
        tokenizer: made the ids; it measures the text of a unit that is cut by the limit.
        dtype: how an id is stored.
        separator_id: written where a stretch of another unit begins, and at the end.
        max_train_tokens: where the training split ends, or None for no limit.
    """

    def __init__(
        self,
        space: Workspace,
        tokenizer: Tokenizer,
        dtype: Dtype,
        separator_id: int | None,
        max_train_tokens: int | None,
    ) -> None:
        self._space = space
        self._tokenizer = tokenizer
        self._dtype = np.dtype(dtype).newbyteorder("<")
        self._separator = None if separator_id is None else np.array([separator_id], dtype=np.uint32)
        self._limit = max_train_tokens
        self._writers: dict[SplitName, ShardWriter] = {
            name: ShardWriter(
                space.dataset,
                name,
                dtype,
                separator_id=separator_id,
                finished=_verified(space, name),
                note=self._note,
            )
            for name in SPLITS
        }
        self._starts = dict.fromkeys(SPLITS, 0)
        self._text_bytes = dict.fromkeys(SPLITS, 0)
        self._open_side: SplitName | None = None
        # Units whose file is still needed, with the position before which their part of `train` ends.
        self._pending: list[tuple[int, int]] = []
        self._bound = 0

    @property
    def tokens(self) -> dict[SplitName, int]:
        """How many are there so far."""
        return {name: writer.tokens for name, writer in self._writers.items()}

    @property
    def train_room(self) -> int | None:
        """How many tokens more the training split takes; None for any number."""
        return None if self._limit is None else max(0, self._limit - self._writers["train"].tokens)

    def usable(self, records: Iterable[PartRecord]) -> Iterator[PartRecord]:
        """Those units of an earlier run whose ids are there and whole, or in shards that are finished."""
        position = 0
        known = True
        for number, record in enumerate(sorted(records, key=lambda record: record.index)):
            known = known and record.index == number
            position += record.sides["train"].tokens + 1
            behind = known and position <= self._writers["train"].finished_tokens
            sides = ("val",) if behind else SPLITS
            if all(
                hash_file(self._space.unit_path(record.index, f"{name}.ids")) == record.sides[name].sha256  # type: ignore[index]
                for name in sides
            ):
                yield record

    def add(self, record: PartRecord) -> None:
        """Appends the next unit."""
        joined = self._open_side is not None and record.goes_on == self._open_side
        if record.last is not None and not joined:
            self._end_stretch()
        for name in SPLITS:
            self._copy(name, record)
        if record.last is not None:
            self._open_side = record.last
        # One more for a separator, as `usable` counts too.
        self._bound += record.sides["train"].tokens + 1
        self._pending.append((record.index, self._bound))
        self._remove_copied()

    def _copy(self, name: SplitName, record: PartRecord) -> None:
        writer, side = self._writers[name], record.sides[name]
        path = self._space.unit_path(record.index, f"{name}.ids")
        room = self.train_room if name == "train" else None
        if room is not None and (room < side.tokens or record.cut):
            self._copy_start(writer, path, min(room, side.tokens))
            return
        self._starts[name] += side.starts
        self._text_bytes[name] += side.text_bytes
        skipped = writer.pass_over(side.tokens)
        for start in range(skipped, side.tokens, _COPY_TOKENS):
            writer.append(self._ids(path, start, min(side.tokens - start, _COPY_TOKENS)))

    def _copy_start(self, writer: ShardWriter, path: Path, room: int) -> None:
        """The part of a unit that the limit leaves."""
        if not room:
            return
        ids = self._ids(path, 0, room)
        writer.append(ids[writer.pass_over(room) :])
        self._starts["train"] += 1
        text = ids if self._separator is None else ids[ids != self._separator[0]]
        for start in range(0, len(text), _COPY_TOKENS):
            decoded = self._tokenizer.decode_bytes(text[start : start + _COPY_TOKENS].tolist())
            self._text_bytes["train"] += len(decoded)

    def _ids(self, path: Path, start: int, count: int) -> np.ndarray:
        ids: np.ndarray = np.fromfile(path, self._dtype, count=count, offset=start * self._dtype.itemsize)
        return ids

    def _end_stretch(self) -> None:
        name = self._open_side
        if self._separator is None or name is None or (name == "train" and self.train_room == 0):
            return
        writer = self._writers[name]
        writer.append(self._separator[writer.pass_over(1) :])

    def _note(self, name: str, records: list[ShardRecord]) -> None:
        replace_bytes(self._space.folder / f"{name}.shards.json", _NOTES.dump_json(records))
        self._remove_copied()

    def _remove_copied(self) -> None:
        finished = self._writers["train"].finished_tokens
        while self._pending and self._pending[0][1] <= finished:
            index, _ = self._pending.pop(0)
            self._space.unit_path(index, "train.ids").unlink(missing_ok=True)

    def finish(self) -> dict[SplitName, SplitRecord]:
        """Makes everything durable and says what was written."""
        self._end_stretch()
        splits: dict[SplitName, SplitRecord] = {}
        for name, writer in self._writers.items():
            shards = writer.finish()
            counted = sum(shard.documents for shard in shards)
            splits[name] = SplitRecord(
                tokens=writer.tokens,
                documents=self._starts[name] if self._separator is None else counted,
                text_bytes=self._text_bytes[name],
                shards=shards,
            )
        return splits

    def close(self) -> None:
        """Lets go of open files."""
        for writer in self._writers.values():
            writer.close()


def overlap(space: Workspace, units: int) -> int:
    """How many training documents (or pieces) are validation documents too; read from what was encoded."""
    tables = [np.load(space.unit_path(index, "keys.npy"), mmap_mode="r") for index in range(units)]
    val = np.unique(np.concatenate([table[1 : 1 + int(table[0])] for table in tables]))
    return sum(int(np.isin(table[1 + int(table[0]) :], val).sum()) for table in tables)


def _verified(space: Workspace, name: str) -> list[ShardRecord]:
    """The finished shards of an earlier run, up to the first that is not as it was noted."""
    try:
        noted = _NOTES.validate_json((space.folder / f"{name}.shards.json").read_bytes())
    except (OSError, ValueError):
        return []
    verified = []
    for record in noted:
        if hash_file(space.dataset / record.file) != record.sha256:
            break
        verified.append(record)
    return verified

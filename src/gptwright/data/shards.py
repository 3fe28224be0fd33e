"""Writes token ids as raw little-endian shards, and hashes them on the way.

Up to 100 M tokens a split is one file, `train.bin` or `val.bin`, which nanoGPT itself can read. Beyond that
it is `train-00000.bin` and so on, so that no file is larger than 400 MB. Nothing is read back: size, hash
and largest id are known when the last byte is written.
"""

import hashlib
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from gptwright.data.manifest import Dtype, ShardRecord

TOKENS_PER_SHARD = 100_000_000


class ShardWriter:
    """Appends ids to the shards of one split.

    Args:
        folder: where the shards go.
        split: `train` or `val`; the start of their names.
        dtype: how an id is stored.
        separator_id: ends a document; None where nothing does.
        finished: shards that an earlier run wrote; the ids that are in them must be passed over.
        note: told all finished shards when one more is.

    Attributes:
        tokens: the position: ids that were written or passed over.
    """

    def __init__(
        self,
        folder: Path,
        split: str,
        dtype: Dtype,
        *,
        separator_id: int | None = None,
        finished: Sequence[ShardRecord] = (),
        note: Callable[[str, list[ShardRecord]], None] = lambda *_: None,
    ) -> None:
        self.tokens = 0
        self._folder = folder
        self._split = split
        self._dtype = np.dtype(dtype).newbyteorder("<")
        self._records = list(finished)
        self._note = note
        self._separator_id = separator_id
        # Whether the next id begins a document.
        self._begins = not self._records or self._last_finished() == separator_id
        self._file: BinaryIO | None = None
        self._begin()

    @property
    def finished_tokens(self) -> int:
        """How many ids are in finished shards."""
        return sum(record.tokens for record in self._records)

    def _last_finished(self) -> int:
        path = self._folder / self._records[-1].file
        offset = (self._records[-1].tokens - 1) * self._dtype.itemsize
        return int(np.fromfile(path, self._dtype, count=1, offset=offset)[0])

    def _begin(self) -> None:
        self._name = f"{self._split}-{len(self._records):05d}.bin"
        self._digest = hashlib.sha256()
        self._shard_tokens = 0
        self._documents = 0
        self._max_id = 0

    def pass_over(self, tokens: int) -> int:
        """Moves the position over those of the next `tokens` ids that are in finished shards.

        Returns:
            How many those are.
        """
        skipped = max(0, min(tokens, self.finished_tokens - self.tokens))
        self.tokens += skipped
        return skipped

    def append(self, ids: npt.NDArray[Any]) -> None:
        """Writes ids, going on in a new shard where one is full."""
        while len(ids):
            room = TOKENS_PER_SHARD - self._shard_tokens
            self._write(ids[:room])
            ids = ids[room:]
            if self._shard_tokens == TOKENS_PER_SHARD:
                self._end_shard()
                self._begin()
                self._note(self._split, self._records)

    def _write(self, ids: npt.NDArray[Any]) -> None:
        if self._file is None:
            self._file = (self._folder / self._name).open("wb")
        raw = ids.astype(self._dtype).tobytes()
        self._file.write(raw)
        self._digest.update(raw)
        self._shard_tokens += len(ids)
        self.tokens += len(ids)
        self._max_id = max(self._max_id, int(ids.max()))
        self._documents += self._begins
        self._begins = False
        if self._separator_id is not None:
            self._documents += int(np.count_nonzero(ids[:-1] == self._separator_id))
            self._begins = bool(ids[-1] == self._separator_id)

    def _end_shard(self) -> None:
        if self._file is None:
            return
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self._file = None
        self._records.append(
            ShardRecord(
                file=self._name,
                tokens=self._shard_tokens,
                documents=self._documents,
                sha256=self._digest.hexdigest(),
                max_id=self._max_id,
            )
        )

    def finish(self) -> list[ShardRecord]:
        """Makes everything durable and says what was written; a single shard gets the short name."""
        self._end_shard()
        if len(self._records) == 1:
            short = f"{self._split}.bin"
            (self._folder / self._records[0].file).replace(self._folder / short)
            self._records[0] = self._records[0].model_copy(update={"file": short})
        return self._records

    def close(self) -> None:
        """Lets go of an open file after a failure; its content is of no use."""
        if self._file is not None:
            # On a full disk the buffer cannot be flushed; the descriptor is closed regardless.
            with suppress(OSError):
                self._file.close()
            self._file = None

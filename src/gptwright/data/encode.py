"""Encodes a stream of stretches on several threads and writes the ids of each split in order.

Threads are enough: tiktoken, tokenizers and numpy release the interpreter's lock while they work. Only a few
blocks are in flight at a time, so memory does not grow with the corpus, and the files do not depend on the
number of threads.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from gptwright.data.manifest import Dtype, SplitRecord
from gptwright.data.shards import ShardWriter
from gptwright.data.stretches import SplitName, Stretch
from gptwright.data.tokenizer_base import Ids, Tokenizer
from gptwright.errors import DataError


def write_splits(
    stretches: Iterable[Stretch],
    tokenizer: Tokenizer,
    folder: Path,
    *,
    dtype: Dtype,
    separator_id: int | None,
    max_train_tokens: int | None,
    workers: int,
    on_characters: Callable[[int], None],
) -> dict[SplitName, SplitRecord]:
    """Encodes everything into the shards of `train` and `val`.

    Args:
        stretches: the corpus, in blocks.
        tokenizer: makes the ids.
        folder: where the shards go.
        dtype: how an id is stored.
        separator_id: written after each contiguous stretch, or None for nothing.
        max_train_tokens: where the training split ends, or None for no limit.
        workers: how many threads encode.
        on_characters: told how many characters have been written since the last call.
    """
    with ExitStack() as stack:
        splits: dict[SplitName, _Split] = {}
        for name, limit in (("train", max_train_tokens), ("val", None)):
            key: SplitName = "train" if name == "train" else "val"
            splits[key] = _Split(ShardWriter(folder, name, dtype), tokenizer, separator_id, limit)
            stack.callback(splits[key].writer.close)
        for stretch, ids in _encoded(stretches, tokenizer, workers):
            splits[stretch.split].add(stretch, ids)
            on_characters(len(stretch.text))
        return {name: split.finish() for name, split in splits.items()}


class _Split:
    def __init__(
        self, writer: ShardWriter, tokenizer: Tokenizer, separator_id: int | None, limit: int | None
    ) -> None:
        self.writer = writer
        self._tokenizer = tokenizer
        self._separator = None if separator_id is None else np.array([separator_id], dtype=np.uint32)
        self._limit = limit
        self._text_bytes = 0
        self._documents = 0

    def add(self, stretch: Stretch, ids: Ids) -> None:
        if self._room() == 0:
            return
        if stretch.starts:
            self._end_document()
            self.writer.start_document()
            self._documents += 1
        room = self._room()
        if room is not None and len(ids) > room:
            ids = ids[:room]
            self._text_bytes += len(self._tokenizer.decode_bytes(ids.tolist()))
        else:
            self._text_bytes += len(stretch.text.encode("utf-8"))
        self.writer.append(ids)

    def finish(self) -> SplitRecord:
        self._end_document()
        return SplitRecord(
            tokens=self.writer.tokens,
            documents=self._documents,
            text_bytes=self._text_bytes,
            shards=self.writer.finish(),
        )

    def _room(self) -> int | None:
        return None if self._limit is None else self._limit - self.writer.tokens

    def _end_document(self) -> None:
        if self._separator is not None and self.writer.tokens and self._room() != 0:
            self.writer.append(self._separator)


def _encoded(
    stretches: Iterable[Stretch], tokenizer: Tokenizer, workers: int
) -> Iterator[tuple[Stretch, Ids]]:
    waiting: deque[tuple[Stretch, Future[Ids]]] = deque()
    with ThreadPoolExecutor(workers) as pool:
        try:
            for stretch in stretches:
                waiting.append((stretch, pool.submit(_encode, tokenizer, stretch)))
                if len(waiting) > 2 * workers:
                    first, future = waiting.popleft()
                    yield first, future.result()
            while waiting:
                first, future = waiting.popleft()
                yield first, future.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _encode(tokenizer: Tokenizer, stretch: Stretch) -> Ids:
    try:
        return tokenizer.encode(stretch.text)
    except DataError as error:
        raise DataError(
            f"in a part of {stretch.name}: {error.problem}", why=error.why, fix=error.fix
        ) from None

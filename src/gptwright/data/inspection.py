"""What a token dataset holds, read from its ids.

The id histogram counts a sample of the training split, some million ids in blocks spread over it, so that a
dataset of any size answers in a second. `overlap` reads everything: it looks for validation documents in
training by the hash of their ids, which needs 16 bytes of memory a validation document.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gptwright.config.load import load_config
from gptwright.data.dataset import TokenDataset, open_dataset
from gptwright.data.sampling import window_count
from gptwright.data.splits import IdArray, TokenSplit
from gptwright.data.tokenizer_base import Tokenizer
from gptwright.errors import DataError, typed

_BLOCKS = 256
_BLOCK_TOKENS = 4096
_MOST_FREQUENT = 10
_SHOWN_TOKENS = 48
_CHUNK_TOKENS = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Frequency:
    """An id, how it reads, and its share of all ids."""

    token: int
    text: str
    share: float


@dataclass(frozen=True, slots=True)
class Window:
    """A few tokens of a split, as text, and where they are."""

    split: str
    position: int
    text: str


@dataclass(frozen=True, slots=True)
class Histogram:
    """The ids of a sample of the training split.

    Attributes:
        sampled: how many ids were counted.
        used: how many different ones were seen.
        entropy: of their distribution, in nats: the loss of a model that knows only frequencies.
        most: the most frequent ones.
    """

    sampled: int
    used: int
    entropy: float
    most: list[Frequency]


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """A dataset, looked at.

    Attributes:
        dataset: what was looked at.
        bytes: the size of its files.
        histogram: the ids of a sample.
        windows: some text of it.
        epochs: passes that the plan asked about makes, and its name; None where none was asked about.
        verified: bytes that were read and found right; None where that was not asked for.
        overlap: training documents that are in validation too; None where that is not known.
    """

    dataset: TokenDataset
    bytes: int
    histogram: Histogram
    windows: list[Window]
    epochs: tuple[str, float] | None
    verified: int | None
    overlap: int | None


def inspect_dataset(name: str, *, plan: str | None, number: int, verify: bool) -> Inspection:
    """Looks at a dataset.

    Args:
        name: its folder, or its name under data/.
        plan: the config whose passes over it are asked about.
        number: texts to show of a split.
        verify: read every byte.
    """
    dataset = open_dataset(name)
    tokenizer = None if dataset.tokenizer_kind == "unknown" else dataset.tokenizer()
    return Inspection(
        dataset=dataset,
        bytes=dataset_bytes(dataset.folder),
        histogram=histogram(dataset, tokenizer),
        windows=windows(dataset, tokenizer, number=number),
        epochs=None if plan is None else _epochs(dataset, plan),
        verified=dataset.verify() if verify else None,
        overlap=_overlap(dataset, count=verify),
    )


def _overlap(dataset: TokenDataset, *, count: bool) -> int | None:
    if dataset.manifest is None or dataset.manifest.separator_id is None:
        return None
    return overlap(dataset) if count else dataset.manifest.validation.overlap


def _epochs(dataset: TokenDataset, plan: str) -> tuple[str, float]:
    config = load_config([plan], {}).config
    there = window_count(dataset.splits["train"], config.block_size)
    if not there:
        raise DataError(
            f"not one window of block_size = {config.block_size:,} fits into {dataset.folder}",
            fix="a smaller --block_size, or more text",
        )
    return plan, config.max_iters * config.sequences_per_step / there


def histogram(dataset: TokenDataset, tokenizer: Tokenizer | None) -> Histogram:
    """Counts ids in blocks spread evenly over the training split."""
    counts = np.zeros(dataset.vocab_size, dtype=np.int64)
    for block in _spread(dataset.splits["train"], _BLOCKS, _BLOCK_TOKENS):
        counted = np.bincount(block, minlength=dataset.vocab_size)
        if len(counted) > dataset.vocab_size:
            raise DataError(
                f"{dataset.folder} has the id {len(counted) - 1}, outside the vocabulary of"
                f" {dataset.vocab_size:,}",
                why="the files are damaged or were made with another tokenizer",
                fix=f"gptwright inspect {typed(dataset.folder)} --verify",
            )
        counts += counted
    total = int(counts.sum())
    shares = counts[counts > 0] / max(1, total)
    order = np.argsort(-counts, kind="stable")[:_MOST_FREQUENT]
    return Histogram(
        sampled=total,
        used=int(np.count_nonzero(counts)),
        entropy=float(-(shares * np.log(shares)).sum()),
        most=[
            Frequency(token, _text(tokenizer, [token]), int(counts[token]) / total)
            for token in order.tolist()
            if counts[token]
        ],
    )


def windows(dataset: TokenDataset, tokenizer: Tokenizer | None, *, number: int) -> list[Window]:
    """The first tokens of both splits and some from inside, decoded."""
    found = []
    for name, split in dataset.splits.items():
        for index in range(number):
            position = split.tokens * index // number
            ids = next(_blocks_from(split, position, _SHOWN_TOKENS), None)
            if ids is not None:
                found.append(Window(name, position, _text(tokenizer, ids.tolist())))
    return found


def overlap(dataset: TokenDataset) -> int:
    """How many documents of the training split are in the validation split too; reads every id.

    Raises:
        DataError: the dataset has no separator, so that documents cannot be told apart.
    """
    separator = None if dataset.manifest is None else dataset.manifest.separator_id
    if separator is None:
        raise DataError(
            f"{dataset.folder} does not mark the end of its documents",
            fix="nothing; its splits can only be compared as a whole",
        )
    val = set(_document_hashes(dataset.splits["val"], separator))
    return sum(key in val for key in _document_hashes(dataset.splits["train"], separator))


def _document_hashes(split: TokenSplit, separator: int) -> Iterator[bytes]:
    digest, empty = hashlib.blake2b(digest_size=16), True
    for shard in split.shards:
        for start in range(0, len(shard.ids), _CHUNK_TOKENS):
            chunk = shard.ids[start : start + _CHUNK_TOKENS]
            begin = 0
            for end in np.flatnonzero(chunk == separator).tolist():
                digest.update(chunk[begin:end].tobytes())
                if end > begin or not empty:
                    yield digest.digest()
                digest, empty, begin = hashlib.blake2b(digest_size=16), True, end + 1
            digest.update(chunk[begin:].tobytes())
            empty = empty and begin == len(chunk)
            shard.release()
    if not empty:
        yield digest.digest()


def _spread(split: TokenSplit, blocks: int, length: int) -> Iterator[IdArray]:
    if split.tokens <= blocks * length:
        yield from (shard.ids for shard in split.shards)
        return
    for index in range(blocks):
        yield from _blocks_from(split, split.tokens * index // blocks, length)


def _blocks_from(split: TokenSplit, position: int, length: int) -> Iterator[IdArray]:
    """At most `length` ids from a position on, as many as its shard has."""
    for offset, shard in zip(split.offsets, split.shards, strict=True):
        if offset <= position < offset + len(shard.ids):
            yield shard.ids[position - offset : position - offset + length]
            return


def _text(tokenizer: Tokenizer | None, ids: list[int]) -> str:
    return " ".join(map(str, ids)) if tokenizer is None else tokenizer.decode(ids)


def dataset_bytes(folder: Path) -> int:
    """The size of all files of a dataset."""
    return sum(path.stat().st_size for path in folder.iterdir() if path.is_file())

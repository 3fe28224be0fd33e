"""The corpus as stretches: runs of text that belong to one split and are contiguous in it.

Both ways of splitting become the same stream, so that encoding does not know how validation was drawn.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from gptwright.data.pieces import blocks, content_hash, cut
from gptwright.data.sources.corpus import Document

SplitName = Literal["train", "val"]

# Large enough that the cost of a call vanishes, small enough to hold a few of them for each thread.
_BLOCK_CHARACTERS = 1_000_000


@dataclass(frozen=True, slots=True)
class Stretch:
    """Contiguous text of one split.

    Attributes:
        split: `train` or `val`.
        name: the document that it comes from, for messages.
        text: the text.
        starts: whether something new starts here, so that a separator belongs before it.
        keys: the hashes of the pieces that are in it.
    """

    split: SplitName
    name: str
    text: str
    starts: bool
    keys: tuple[bytes, ...] = ()


def hash_stretches(
    documents: Iterable[Document], *, limit: bytes, size: int | None, dropped: frozenset[int] = frozenset()
) -> Iterator[Stretch]:
    """Documents on the sides where their content puts them.

    Args:
        documents: those of a unit.
        limit: the largest hash of the validation side.
        size: documents are cut into pieces of this size, each with a side of its own; None keeps them whole.
        dropped: the numbers of documents that are duplicates of earlier ones.
    """
    last: SplitName | None = None
    for number, document in enumerate(documents):
        if number in dropped:
            continue
        pieces = [document.text] if size is None else cut(document.text, size)
        keyed = [(content_hash(piece.encode("utf-8")), piece) for piece in pieces]
        for index, (validation, group) in enumerate(groupby(keyed, lambda pair: pair[0] <= limit)):
            split: SplitName = "val" if validation else "train"
            goes_on = index == 0 and document.part > 0 and last in (split, None)
            same = list(group)
            text = same[0][1] if len(same) == 1 else "".join(piece for _, piece in same)
            yield Stretch(split, document.name, text, not goes_on, tuple(key for key, _ in same))
            last = split


def nanogpt_stretches(text: str, name: str) -> Iterator[Stretch]:
    """nanoGPT's split: the first 90 % of the characters, then the rest."""
    end = int(len(text) * 0.9)
    for split, part in (("train", text[:end]), ("val", text[end:])):
        if part:
            yield Stretch("train" if split == "train" else "val", name, part, True)


def in_blocks(stretches: Iterable[Stretch]) -> Iterator[Stretch]:
    """The same stretches, long ones in blocks that encode as the whole would."""
    for stretch in stretches:
        if len(stretch.text) <= _BLOCK_CHARACTERS:
            yield stretch
            continue
        for index, text in enumerate(blocks(stretch.text, _BLOCK_CHARACTERS, longest=2 * _BLOCK_CHARACTERS)):
            first = index == 0
            yield Stretch(
                stretch.split, stretch.name, text, stretch.starts and first, stretch.keys if first else ()
            )

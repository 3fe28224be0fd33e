"""The corpus as stretches: runs of text that belong to one split and are contiguous in it.

Both ways of splitting become the same stream, so that encoding does not know how validation was drawn.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from gptwright.data.pieces import ContentDraw, blocks, cut
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
    """

    split: SplitName
    name: str
    text: str
    starts: bool


def hash_stretches(documents: Iterable[Document], draw: ContentDraw, size: int) -> Iterator[Stretch]:
    """Documents cut into pieces, each on the side where its content puts it."""
    last: SplitName | None = None
    for document in documents:
        sides = groupby(cut(document.text, size), draw.is_validation)
        for index, (validation, pieces) in enumerate(sides):
            split: SplitName = "val" if validation else "train"
            goes_on = index == 0 and document.part > 0 and split == last
            yield Stretch(split, document.name, "".join(pieces), not goes_on)
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
        for index, text in enumerate(blocks(stretch.text, _BLOCK_CHARACTERS)):
            yield Stretch(stretch.split, stretch.name, text, stretch.starts and index == 0)

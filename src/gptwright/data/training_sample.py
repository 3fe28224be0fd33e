"""The text that a tokenizer is trained on: some 64 MB of the training side, spread over the whole corpus.

Each unit gives the same share, from its start, so that a sample of a large corpus costs little reading. More
text changes the vocabulary hardly, and the memory of the training grows with it.
"""

from collections.abc import Iterator, Sequence

from gptwright.data.encode import read_dropped
from gptwright.data.sources.corpus import Tally, Unit
from gptwright.data.stretches import hash_stretches, in_blocks
from gptwright.data.work import Workspace

_SAMPLE_BYTES = 64_000_000


def training_sample(
    units: Sequence[Unit], space: Workspace, *, limit: bytes, size: int | None
) -> Iterator[str]:
    """Texts of the training side.

    Args:
        units: the corpus.
        space: knows which documents are duplicates.
        limit: the largest hash of the validation side.
        size: documents are cut into pieces of this size; None keeps them whole.
    """
    share = _SAMPLE_BYTES / len(units)
    left = 0.0
    for index, unit in enumerate(units):
        # What a small unit does not use, the next may.
        left += share
        documents = unit.read(Tally())
        stretches = hash_stretches(documents, limit=limit, size=size, dropped=read_dropped(space, index))
        for block in in_blocks(stretches):
            if block.split == "train":
                yield block.text
                left -= len(block.text)
            if left <= 0:
                break

"""nanoGPT's split: the first 90 % of the characters, then the rest.

It is defined on the whole text, so the text is held, and a corpus above 256 MiB is refused: it would take
more memory than `prepare` promises, and the end of a large corpus says little about the rest of it.
"""

from collections.abc import Callable

from gptwright import units
from gptwright.data.assemble import Assembly
from gptwright.data.encode import Part
from gptwright.data.manifest import Dtype, SplitRecord
from gptwright.data.sources.corpus import Corpus, Tally
from gptwright.data.stretches import SplitName, nanogpt_stretches
from gptwright.data.tokenizer_base import Tokenizer
from gptwright.data.work import Workspace
from gptwright.errors import DataError

_MOST_BYTES = 256 * 1024 * 1024


def read_contiguous(corpus: Corpus, tally: Tally, progress: Callable[[int], None]) -> str:
    """The text of a corpus.

    Args:
        corpus: what is read.
        tally: counts it.
        progress: told how many bytes, about, were read since the last call.

    Raises:
        DataError: it is too large to be held, or too small to be split.
    """
    texts: list[str] = []
    for document in corpus.documents(tally):
        texts.append(document.text)
        progress(len(document.text))
        if tally.bytes > _MOST_BYTES:
            raise DataError(
                f"--split nanogpt holds the whole text, and {corpus.name} has more than"
                f" {units.size(_MOST_BYTES)}",
                why="it would take several times that in memory",
                fix="leave --split out: validation is then drawn by content over the whole corpus",
            )
    text = "".join(texts)
    if len(text) < 2:
        raise DataError(
            f"the corpus has {len(text)} character(s), too few to be split in two", fix="give more text"
        )
    return text


def encode_contiguous(
    text: str,
    name: str,
    space: Workspace,
    tokenizer: Tokenizer,
    dtype: Dtype,
    *,
    max_train_tokens: int | None,
    progress: Callable[[int], None],
) -> dict[SplitName, SplitRecord]:
    """Encodes both sides as one unit, without separators.

    Args:
        text: the whole.
        name: what it is called in messages.
        space: where the ids go.
        tokenizer: makes them.
        dtype: how an id is stored.
        max_train_tokens: where the training split ends, or None for no limit.
        progress: told how many characters were encoded since the last call.
    """
    assembly = Assembly(space, tokenizer, dtype, None, max_train_tokens)
    try:
        with Part(
            space, 0, tokenizer, dtype, None, train_room=max_train_tokens, on_characters=progress
        ) as part:
            part.write(nanogpt_stretches(text, name))
            assembly.add(part.finish(Tally()))
        return assembly.finish()
    finally:
        assembly.close()

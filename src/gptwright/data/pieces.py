"""Cuts documents into pieces and decides by their content which ones are validation.

A validation split taken from the end of a corpus measures that end. Here the blake2b hash of each piece
decides, so validation is spread over the whole corpus, does not depend on the order of files or on a seed,
and a text that occurs twice is never on both sides. How the draw is made over a whole corpus is in `draw`.
"""

import hashlib
import re
from collections.abc import Iterator

# A document is cut when it is longer than this many pieces: 64 Ki characters at full piece size.
_PIECES_KEPT_WHOLE = 8
_LARGEST_PIECE = 8192
_SMALLEST_PIECE = 64

_BLANK_LINE = re.compile(r"\n(?:[ \t\r]*\n)+")

# Where both neighbours are visible characters, a line end is a token boundary for every tokenizer here, so
# text cut after it encodes to the same ids as the whole.
_SAFE_LINE_END = re.compile(r"(?<=\S)\n(?=\S)")
# And text cut before such a space: a word takes the space before it along.
_SAFE_SPACE = re.compile(r"(?<=\S)(?= \S)")


def piece_size(corpus_bytes: int) -> int:
    """The length of a piece, in characters: 8 Ki, or a hundredth of a small corpus.

    With fewer than some tens of pieces a tenth of the corpus could not be drawn evenly.
    """
    return min(_LARGEST_PIECE, max(_SMALLEST_PIECE, corpus_bytes // 100))


def cut(text: str, size: int) -> list[str]:
    """A document's pieces: itself if short, else parts of about `size` that end at blank lines.

    Where there is no blank line near, a piece ends at a line end, and where there is none, anywhere.
    """
    if len(text) <= _PIECES_KEPT_WHOLE * size:
        return [text]
    pieces = []
    start = 0
    while len(text) - start > 2 * size:
        end = _cut_after(text, start + size, start + 2 * size)
        pieces.append(text[start:end])
        start = end
    pieces.append(text[start:])
    return pieces


def _cut_after(text: str, earliest: int, latest: int) -> int:
    blank = _BLANK_LINE.search(text, earliest, latest)
    if blank:
        return blank.end()
    return text.find("\n", earliest, latest) + 1 or earliest


def content_hash(encoded: bytes) -> bytes:
    """What identifies a piece, by its UTF-8, and decides its side."""
    return hashlib.blake2b(encoded, digest_size=16).digest()


def blocks(text: str, size: int, *, longest: int | None = None) -> Iterator[str]:
    """A text in blocks of at least `size` characters whose encodings, joined, are that of the whole.

    Args:
        text: any text.
        size: how long a block is at least.
        longest: where no boundary is found up to here, a block ends inside a word, whose ids may then differ
            from those of the whole. A word of a million letters would take seconds to encode.
    """
    start = 0
    while len(text) - start > size:
        last = len(text) if longest is None else min(len(text), start + longest)
        found = _SAFE_LINE_END.search(text, start + size, last) or _SAFE_SPACE.search(
            text, start + size, last
        )
        if found is None and last == len(text):
            break
        end = last if found is None else found.end()
        yield text[start:end]
        start = end
    if start < len(text):
        yield text[start:]

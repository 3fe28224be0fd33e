"""Cuts documents into pieces and decides by their content which ones are validation.

A validation split taken from the end of a corpus measures that end. Here the blake2b hash of each piece
decides, so validation is spread over the whole corpus, does not depend on the order of files or on a seed,
and a text that occurs twice is never on both sides.

Cost: 16 bytes of hash and a dict entry for each piece, some 150 MB of memory for 10 GB of text.
"""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from gptwright.errors import DataError

# A document is cut when it is longer than this many pieces: 64 Ki characters at full piece size.
_PIECES_KEPT_WHOLE = 8
_LARGEST_PIECE = 8192
_SMALLEST_PIECE = 64

_BLANK_LINE = re.compile(r"\n(?:[ \t\r]*\n)+")

# Where both neighbours are visible characters, a line end is a token boundary for every tokenizer here, so
# text cut after it encodes to the same ids as the whole.
_SAFE_LINE_END = re.compile(r"(?<=\S)\n(?=\S)")


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


@dataclass(slots=True)
class ContentDraw:
    """Collects the pieces of a corpus, then draws the validation split.

    Attributes:
        pieces: how many pieces were added.
        size: their bytes in UTF-8.
        largest: the largest hash that is drawn.
    """

    pieces: int = 0
    size: int = 0
    largest: bytes = b""
    _sizes: dict[bytes, int] = field(default_factory=dict)

    def add(self, piece: str) -> None:
        """Counts a piece."""
        encoded = piece.encode("utf-8")
        key = content_hash(encoded)
        self._sizes[key] = self._sizes.get(key, 0) + len(encoded)
        self.pieces += 1
        self.size += len(encoded)

    def draw(self, fraction: float) -> None:
        """Takes the pieces with the smallest hashes until `fraction` of the bytes is reached.

        Raises:
            DataError: there is only one piece, or all are the same text.
        """
        if len(self._sizes) < 2:
            raise DataError(
                f"the corpus cannot be split: it has {self.size:,} bytes in {self.pieces} piece(s),"
                f" of which {len(self._sizes)} differ",
                why="training and validation must not hold the same text, and neither may be empty",
                fix="give more text, or use --split nanogpt, which takes the last 10 % as it is",
            )
        reached = 0
        for key in sorted(self._sizes)[:-1]:
            self.largest = key
            reached += self._sizes[key]
            if reached >= fraction * self.size:
                break
        self._sizes.clear()

    def is_validation(self, piece: str) -> bool:
        """Whether a piece was drawn."""
        return content_hash(piece.encode("utf-8")) <= self.largest


def blocks(text: str, size: int) -> Iterator[str]:
    """A text in blocks of at least `size` characters whose encodings, joined, are that of the whole."""
    start = 0
    while len(text) - start > size:
        found = _SAFE_LINE_END.search(text, start + size)
        if found is None:
            break
        yield text[start : found.end()]
        start = found.end()
    if start < len(text):
        yield text[start:]

"""Tokenizers without a learned vocabulary: one id per character, or one per byte.

Characters are nanoGPT's choice for small corpora: the sorted set of those that occur, so ids and counts
match its own. Bytes need no corpus, know every script, and cost two to three ids per character outside
Latin. Both encode with numpy at memory speed.
"""

import json
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from gptwright.data.tokenizer_base import SEPARATOR_TEXT, TOKENIZER_SCHEMA, Ids, Tokenizer, utf8_of
from gptwright.errors import DataError

_UNKNOWN = np.uint32(0xFFFFFFFF)


class CharTokenizer(Tokenizer):
    """One id per character.

    Args:
        characters: the vocabulary in id order.
        separator: whether one more id, the last, marks the end of a document.
    """

    kind = "char"

    def __init__(self, characters: str, *, separator: bool) -> None:
        if len(set(characters)) != len(characters):
            raise DataError(
                "a character vocabulary names a character twice",
                why="one character would have two ids",
                fix="prepare the dataset again",
            )
        self.characters = characters
        self.separator_id = len(characters) if separator else None
        self.vocab_size = len(characters) + separator
        self._codes = _code_points(characters)
        highest = int(self._codes.max(initial=0))
        self._id_of = np.full(highest + 2, _UNKNOWN, dtype=np.uint32)
        self._id_of[self._codes] = np.arange(len(characters), dtype=np.uint32)

    def encode(self, text: str) -> Ids:
        """The ids of a text; a character that the vocabulary lacks is refused by name."""
        codes = _code_points(text)
        ids: Ids = self._id_of[np.minimum(codes, len(self._id_of) - 1)]
        unknown = ids == _UNKNOWN
        if unknown.any():
            position = int(unknown.argmax())
            character = text[position]
            raise DataError(
                f"character {character!r} (U+{ord(character):04X}) at position {position} is not in the"
                f" vocabulary of {len(self.characters)} characters",
                why="a character tokenizer knows only the characters of the corpus that it was made from",
                fix="leave the character out, or prepare the dataset with --tokenizer byte or gpt2",
            )
        return ids

    def decode_bytes(self, ids: Sequence[int]) -> bytes:
        """The UTF-8 bytes of ids."""
        self.check_decodable(ids)
        return "".join(
            SEPARATOR_TEXT if token == self.separator_id else self.characters[token] for token in ids
        ).encode("utf-8")

    def to_bytes(self) -> bytes:
        """The vocabulary as JSON."""
        return _json_bytes(
            {"kind": self.kind, "characters": self.characters, "separator": self.separator_id is not None}
        )


class ByteTokenizer(Tokenizer):
    """One id per UTF-8 byte, and 256 for the end of a document."""

    kind = "byte"
    vocab_size = 257
    separator_id: int | None = 256

    def encode(self, text: str) -> Ids:
        """The bytes of a text as ids."""
        return np.frombuffer(utf8_of(text), dtype=np.uint8).astype(np.uint32)

    def decode_bytes(self, ids: Sequence[int]) -> bytes:
        """The bytes of ids."""
        self.check_decodable(ids)
        separator = SEPARATOR_TEXT.encode()
        return b"".join(separator if token == self.separator_id else bytes((token,)) for token in ids)

    def to_bytes(self) -> bytes:
        """The kind as JSON: there is nothing else to say."""
        return _json_bytes({"kind": self.kind})


def characters_of(texts: Iterable[str]) -> str:
    """The sorted unique characters of some texts, in nanoGPT's order."""
    seen: set[str] = set()
    for text in texts:
        seen.update(text)
    return "".join(sorted(seen))


def _code_points(text: str) -> npt.NDArray[np.uint32]:
    return np.frombuffer(text.encode("utf-32-le", errors="surrogatepass"), dtype="<u4").astype(np.uint32)


def _json_bytes(fields: dict[str, object]) -> bytes:
    return (json.dumps({"schema": TOKENIZER_SCHEMA, **fields}) + "\n").encode("ascii")

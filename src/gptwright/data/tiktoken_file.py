"""Vocabularies in tiktoken's file format: one token a line, base64 of its bytes and its rank.

Such a file does not say how text is cut into words before merging; tiktoken keeps that pattern in its code
(tiktoken_ext/openai_public.py). OpenAI's files are known by their sha256 and get their own pattern. Any other
(Llama 3's tokenizer.model is one) gets cl100k's, which its trainers mostly used: every text comes back
unchanged all the same, but ids may differ from what that model was trained on.
"""

import base64
import binascii
import hashlib
import json
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from gptwright.data.bpe import GPT2_PATTERN
from gptwright.data.tokenizer_base import (
    LARGEST_VOCABULARY,
    SEPARATOR_TEXT,
    TOKENIZER_SCHEMA,
    Ids,
    Tokenizer,
    import_extra,
    utf8_of,
)
from gptwright.errors import DataError

_CL100K = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
    r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
)
_O200K = "|".join(
    [
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    ]
)
_PATTERNS = (GPT2_PATTERN, _CL100K, _O200K)
# By the sha256 of the file: its pattern and the id of <|endoftext|>.
_KNOWN = {
    "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930": (GPT2_PATTERN, 50256),
    "94b5ca7dff4d00767bc256fdd1b27e5b17361d7b8a5f968547f9f23eb70d2069": (GPT2_PATTERN, 50256),
    "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7": (_CL100K, 100257),
    "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d": (_O200K, 199999),
}


class TiktokenTokenizer(Tokenizer):
    """A byte-level BPE from a file of tiktoken.

    Args:
        lines: the file's text.
        pattern: how text is cut into words.
        separator_id: the id of the end of a document, which no line may have.
        origin: the file's name, for messages.
    """

    kind = "tiktoken"
    separator_id: int

    def __init__(self, lines: str, *, pattern: str, separator_id: int, origin: str) -> None:
        self._lines = lines
        if pattern not in _PATTERNS or not 0 <= separator_id < LARGEST_VOCABULARY:
            raise DataError(
                f"{origin} is not a tokenizer that gptwright wrote: its pattern or separator is none of ours",
                why="a pattern from elsewhere can make its engine search for ever",
                fix="give the .tiktoken file itself",
            )
        self._pattern = pattern
        self._ranks = _ranks(lines, origin)
        if separator_id in self._ranks.values():
            raise DataError(
                f"{origin} gives a token the separator's id {separator_id}",
                why="text could forge the end of a document",
                fix="give the .tiktoken file itself",
            )
        self.separator_id = separator_id
        self.vocab_size = max(separator_id, *self._ranks.values()) + 1

    @classmethod
    def of_file(cls, lines: str, origin: str) -> "TiktokenTokenizer":
        """The tokenizer of a file as tiktoken has it."""
        pattern, separator = _KNOWN.get(hashlib.sha256(lines.encode("utf-8")).hexdigest(), (_CL100K, None))
        if separator is None:
            separator = max(_ranks(lines, origin).values()) + 1
        return cls(lines, pattern=pattern, separator_id=separator, origin=origin)

    @cached_property
    def _encoding(self) -> Any:
        tiktoken = import_extra("tiktoken", "a tiktoken vocabulary")
        return tiktoken.Encoding(
            name="file",
            pat_str=self._pattern,
            mergeable_ranks=self._ranks,
            special_tokens={SEPARATOR_TEXT: self.separator_id},
        )

    def encode(self, text: str) -> Ids:
        """The ids of a text."""
        utf8_of(text)
        ids: Ids = self._encoding.encode_to_numpy(text, disallowed_special=())
        return ids

    def decode_bytes(self, ids: Sequence[int]) -> bytes:
        """The bytes of ids; ids that the file leaves out have none."""
        self.check_decodable(ids)
        return b"".join(self._bytes_of.get(token, b"") for token in ids)

    @cached_property
    def _bytes_of(self) -> dict[int, bytes]:
        table = {rank: token for token, rank in self._ranks.items()}
        return table | {self.separator_id: SEPARATOR_TEXT.encode()}

    def to_bytes(self) -> bytes:
        """The file and what it does not say, as JSON."""
        fields = {
            "schema": TOKENIZER_SCHEMA,
            "kind": self.kind,
            "pattern": self._pattern,
            "separator": self.separator_id,
            "ranks": self._lines,
        }
        return (json.dumps(fields) + "\n").encode("ascii")


def _ranks(lines: str, origin: str) -> dict[bytes, int]:
    ranks: dict[bytes, int] = {}
    for number, line in enumerate(lines.splitlines(), 1):
        if not line.strip():
            continue
        token, _, rank = line.partition(" ")
        try:
            ranks[base64.b64decode(token, validate=True)] = _rank(rank)
        except (ValueError, binascii.Error):
            raise DataError(
                f"line {number} of {origin} is not a token of a tiktoken file: {line[:40]!r}",
                why=f"each line must be base64 and a rank below {LARGEST_VOCABULARY:,}",
                fix="get the file again, or give a tokenizer.json",
            ) from None
    if len(set(ranks.values())) < len(ranks):
        raise DataError(
            f"{origin} gives two tokens the same rank",
            why="one id would stand for two texts",
            fix="get the file again, or give a tokenizer.json",
        )
    missing = [byte for byte in range(256) if bytes([byte]) not in ranks]
    if missing:
        raise DataError(
            f"{origin} lacks {len(missing)} of the 256 bytes",
            why="only a vocabulary with every byte can express every text",
            fix="give a whole tiktoken file, or a tokenizer.json",
        )
    return ranks


def _rank(text: str) -> int:
    """A rank as tiktoken writes it.

    Raises:
        ValueError: it is none, or larger than any vocabulary needs.
    """
    if not (text.isascii() and text.strip().isdigit()) or len(text) > 10 or int(text) >= LARGEST_VOCABULARY:
        raise ValueError(text)
    return int(text)

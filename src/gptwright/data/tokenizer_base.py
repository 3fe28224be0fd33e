"""What every tokenizer offers, whatever its vocabulary.

Text becomes a numpy array of uint32 ids and never a list of Python ints, which would cost nine times the
memory. A tokenizer's identity is the sha256 of the file that it saves, so the hash in a dataset's manifest
can be checked with any tool. The separator between documents is an id that no text encodes to: a corpus
that spells out "<|endoftext|>" cannot forge the end of a document.
"""

import hashlib
import importlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import numpy as np
import numpy.typing as npt

from gptwright.errors import DataError

TOKENIZER_SCHEMA = "gptwright.tokenizer/1"
SEPARATOR_TEXT = "<|endoftext|>"

# The largest published vocabularies have some 260,000 ids.
LARGEST_VOCABULARY = 2**24

Ids = npt.NDArray[np.uint32]


class Tokenizer(ABC):
    """Text to ids and back.

    Attributes:
        kind: `char`, `byte`, `gpt2`, `bpe` or `tiktoken`.
        vocab_size: how many ids there are; every id is below it.
        separator_id: the id written where a document ends, or None if there is none.
    """

    kind: str
    vocab_size: int
    separator_id: int | None

    @abstractmethod
    def encode(self, text: str) -> Ids:
        """The ids of a text; special-token text in it is ordinary text.

        Raises:
            DataError: the text holds something that this vocabulary cannot express.
        """

    def encode_all(self, texts: Sequence[str]) -> list[Ids]:
        """The ids of each text."""
        return [self.encode(text) for text in texts]

    @abstractmethod
    def decode_bytes(self, ids: Sequence[int]) -> bytes:
        """The UTF-8 bytes of ids, which may end inside a character.

        Raises:
            DataError: an id is outside the vocabulary.
        """

    @abstractmethod
    def to_bytes(self) -> bytes:
        """The tokenizer as the JSON document that `save` writes."""

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids; bytes that are not UTF-8 become U+FFFD. The separator reads `<|endoftext|>`."""
        return self.decode_bytes(ids).decode("utf-8", errors="replace")

    def save(self, path: Path) -> None:
        """Writes the tokenizer to a file that `load_tokenizer` reads."""
        path.write_bytes(self.to_bytes())

    @property
    def sha256(self) -> str:
        """The tokenizer's identity: the sha256 of its file."""
        return hashlib.sha256(self.to_bytes()).hexdigest()

    def check_decodable(self, ids: Sequence[int]) -> None:
        """Refuses ids outside the vocabulary."""
        for position, token in enumerate(ids):
            if not 0 <= token < self.vocab_size:
                raise DataError(
                    f"cannot decode token id {token} at position {position}: the {self.kind} vocabulary"
                    f" has ids 0 to {self.vocab_size - 1}",
                    why="the ids come from another tokenizer, or from a model with a padded vocabulary",
                    fix="use the tokenizer of the dataset that the model was trained on",
                )


@contextmanager
def panics_as_error(origin: str) -> Iterator[None]:
    """Turns a panic of a library in Rust, which is no `Exception`, into an error about the tokenizer's file.

    Raises:
        DataError: the library panicked.
    """
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise DataError(
            f"{origin} is not a tokenizer that can be used: {str(error)[:200]}",
            why="its library cannot go on with what the file says",
            fix="get the file again, or prepare with --tokenizer gpt2 or bpe:N",
        ) from None


def utf8_of(text: str) -> bytes:
    """A text's UTF-8 bytes; half of a surrogate pair, which has none, is refused by name."""
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise DataError(
            f"the text holds U+{ord(text[error.start]):04X} at position {error.start},"
            " half of a surrogate pair",
            why="it is not a character and has no UTF-8 form; it usually comes from a wrongly decoded input",
            fix="give the text as valid UTF-8",
        ) from None


def import_extra(module: str, purpose: str, *, extra: str = "train") -> ModuleType:
    """Imports a package of an extra, or says how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise DataError(
            f"{purpose} needs the package '{module}', which is not installed",
            fix=f"pip install 'gptwright[{extra}]'",
        ) from None

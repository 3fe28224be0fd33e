"""Making a tokenizer from what a person typed, and loading one from its file.

The kinds live in `characters` (char, byte) and `bpe` (gpt2, bpe:N); whoever needs a tokenizer needs only
this module.
"""

import difflib
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from gptwright.data.bpe import BpeTokenizer, Gpt2Tokenizer, train_bpe
from gptwright.data.characters import ByteTokenizer, CharTokenizer, characters_of
from gptwright.data.tiktoken_file import TiktokenTokenizer
from gptwright.data.tokenizer_base import SEPARATOR_TEXT, TOKENIZER_SCHEMA, Ids, Tokenizer
from gptwright.errors import DataError

__all__ = [
    "SEPARATOR_TEXT",
    "BpeTokenizer",
    "ByteTokenizer",
    "CharTokenizer",
    "Gpt2Tokenizer",
    "Ids",
    "TiktokenTokenizer",
    "Tokenizer",
    "load_tokenizer",
    "make_tokenizer",
]

# The largest published vocabularies are near 20 MiB of JSON.
_LARGEST_FILE = 64 * 1024 * 1024

_TIKTOKEN_LINE = re.compile(r"[A-Za-z0-9+/]+=* [0-9]+\r?\n")

_FORMS = "char, byte, gpt2, bpe:N (such as bpe:4096), a tokenizer.json or a .tiktoken file"


def make_tokenizer(spec: str, texts: Callable[[], Iterator[str]], *, separator: bool = False) -> Tokenizer:
    """The tokenizer that `--tokenizer SPEC` means.

    Args:
        spec: `char`, `byte`, `gpt2`, `bpe:N`, or the path of a tokenizer file.
        texts: gives the corpus; called only for `char`, which lists its characters, and `bpe:N`,
            which is trained on it.
        separator: whether a `char` vocabulary gets an id for the end of a document.

    Raises:
        DataError: the spec means nothing; the nearest forms are named.
    """
    if spec == "char":
        return CharTokenizer(characters_of(texts()), separator=separator)
    if spec == "byte":
        return ByteTokenizer()
    if spec == "gpt2":
        return Gpt2Tokenizer()
    if spec.startswith("bpe:"):
        return train_bpe(texts(), _bpe_size(spec))
    if Path(spec).is_file():
        return load_tokenizer(Path(spec))
    raise DataError(
        f"unknown tokenizer '{spec}', and there is no such file",
        why=f"known are {_FORMS}",
        fix=_instead_of(spec),
    )


def _instead_of(spec: str) -> str:
    """What to type in place of a name that no tokenizer has."""
    if Path(spec).suffix or len(Path(spec).parts) > 1:
        return f"the path of a file that is there; {Path(spec).parent.resolve()} has no {Path(spec).name}"
    if spec.lower().startswith("bpe"):
        return "--tokenizer bpe:4096, or another number of tokens"
    near = difflib.get_close_matches(spec.lower(), ["char", "byte", "gpt2"], n=1, cutoff=0.4)
    return f"--tokenizer {near[0] if near else 'char'}"


def load_tokenizer(path: Path) -> Tokenizer:
    """Reads a tokenizer from a file of ours, a byte-level BPE of the Hugging Face library's, or tiktoken's.

    Raises:
        DataError: the file is missing, too large, or not a tokenizer.
    """
    document = _read_text(path)
    if _TIKTOKEN_LINE.match(document):
        return TiktokenTokenizer.of_file(document, path.name)
    try:
        fields = json.loads(document)
    except (ValueError, RecursionError):
        raise _not_a_tokenizer(path, "it is not JSON") from None
    if not isinstance(fields, dict):
        raise _not_a_tokenizer(path, "it is JSON, but not an object")
    if "schema" not in fields:
        return BpeTokenizer(document, origin=path.name)
    if fields["schema"] != TOKENIZER_SCHEMA:
        raise _not_a_tokenizer(path, f"its schema is {fields['schema']!r}, not {TOKENIZER_SCHEMA!r}")
    kind = fields.get("kind")
    if kind == "byte":
        return ByteTokenizer()
    if kind == "gpt2":
        return Gpt2Tokenizer()
    characters, separator = fields.get("characters"), fields.get("separator")
    if kind == "char" and isinstance(characters, str) and isinstance(separator, bool):
        return CharTokenizer(characters, separator=separator)
    pattern, ranks, end = fields.get("pattern"), fields.get("ranks"), fields.get("separator")
    if kind == "tiktoken" and isinstance(pattern, str) and isinstance(ranks, str) and type(end) is int:
        return TiktokenTokenizer(ranks, pattern=pattern, separator_id=end, origin=path.name)
    raise _not_a_tokenizer(path, f"its kind is {kind!r}, or a field of that kind is missing")


def _bpe_size(spec: str) -> int:
    digits = spec.removeprefix("bpe:")
    if not (digits.isascii() and digits.isdigit()):
        raise DataError(
            f"'{spec}' does not say how many tokens the BPE shall have",
            fix="write a whole number, such as --tokenizer bpe:4096",
        )
    return int(digits)


def _read_text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST_FILE + 1)
    except OSError as error:
        raise DataError(
            f"tokenizer file {path} cannot be read: {error.strerror}",
            fix=f"give one of {_FORMS}",
        ) from None
    if len(content) > _LARGEST_FILE:
        raise _not_a_tokenizer(path, "it is larger than 64 MiB")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        raise _not_a_tokenizer(path, "it is not UTF-8 text") from None


def _not_a_tokenizer(path: Path, reason: str) -> DataError:
    return DataError(
        f"{path} is not a tokenizer file: {reason}",
        fix="give a tokenizer.json that gptwright or the Hugging Face tokenizers library wrote",
    )

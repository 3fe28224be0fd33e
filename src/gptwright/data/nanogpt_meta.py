"""nanoGPT's `meta.pkl`: the characters of a dataset, read without unpickling."""

import pickle
from pathlib import Path
from typing import Any

from gptwright.data.characters import CharTokenizer
from gptwright.data.pickles import read_plain_pickle
from gptwright.data.tokenizer_base import SEPARATOR_TEXT
from gptwright.errors import DataError

META_NAME = "meta.pkl"


def meta_of(tokenizer: CharTokenizer) -> bytes:
    """The file that nanoGPT's sample.py decodes with; a separator stands behind the characters."""
    symbols = list(tokenizer.characters)
    if tokenizer.separator_id is not None:
        symbols.append(SEPARATOR_TEXT)
    return pickle.dumps(
        {
            "vocab_size": tokenizer.vocab_size,
            "itos": dict(enumerate(symbols)),
            "stoi": {symbol: number for number, symbol in enumerate(symbols)},
        }
    )


def meta_fields(path: Path) -> dict[str, Any]:
    """The fields of a meta.pkl, of which `vocab_size` is checked.

    Raises:
        DataError: it is none.
    """
    fields = read_plain_pickle(path)
    size = fields.get("vocab_size") if isinstance(fields, dict) else None
    if not isinstance(fields, dict) or not isinstance(size, int) or not 1 <= size <= 2**16:
        raise _bad_meta(path, f"its vocab_size is {size!r}")
    return fields


def tokenizer_of_meta(path: Path) -> CharTokenizer:
    """The characters of a meta.pkl that has `itos`.

    Raises:
        DataError: it names something else than one character an id.
    """
    fields = meta_fields(path)
    size, itos = fields["vocab_size"], fields["itos"]
    symbols = [itos.get(number) for number in range(size)] if isinstance(itos, dict) else itos
    if not isinstance(symbols, list) or len(symbols) != size:
        raise _bad_meta(path, f"itos does not name {size} tokens")
    separator = symbols[-1] == SEPARATOR_TEXT
    characters = symbols[:-1] if separator else symbols
    if not all(isinstance(symbol, str) and len(symbol) == 1 for symbol in characters):
        raise _bad_meta(path, "itos holds something that is not one character")
    return CharTokenizer("".join(characters), separator=separator)


def _bad_meta(path: Path, reason: str) -> DataError:
    return DataError(
        f"{path} is not a vocabulary as nanoGPT writes it: {reason}",
        why="a dict of vocab_size, itos (id to character) and stoi is expected",
        fix="run the dataset's own prepare.py again, or prepare the text with `gptwright prepare`",
    )

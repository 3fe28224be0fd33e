"""Our tokenizers as the files that transformers' `AutoTokenizer` loads.

Each becomes a `tokenizer.json` of the Hugging Face tokenizers library where that can say exactly the same:

- GPT-2's BPE and a trained one: byte-level BPE. GPT-2's merges follow from its vocabulary, because a token's
  id is its rank: the last merge of a token is that of the two parts which all earlier merges leave.
- bytes: the same without merges; characters: one word a character, and an unknown one is an error there too.
- tiktoken files: their patterns have possessive repeats that the library's regular expressions read
  otherwise, so none is written, and the card says so.

What differs for all: these libraries take "<|endoftext|>" written out in a text for the end of a document,
which our own encoding never does.
"""

import json
from itertools import pairwise
from typing import Any

from gptwright.data.bpe import BpeTokenizer, Gpt2Tokenizer, gpt2_vocabulary, symbols_of_bytes
from gptwright.data.characters import ByteTokenizer, CharTokenizer
from gptwright.data.tokenizer_base import SEPARATOR_TEXT, Tokenizer, import_extra


def as_tokenizers_file(tokenizer: Tokenizer) -> str | None:
    """The text of tokenizer.json; None where the library cannot say the same."""
    library = import_extra("tokenizers", "a tokenizer of Hugging Face's")
    if isinstance(tokenizer, BpeTokenizer):
        made = library.Tokenizer.from_str(tokenizer.to_bytes().decode("utf-8"))
    elif isinstance(tokenizer, Gpt2Tokenizer):
        vocabulary = gpt2_vocabulary()
        words = {symbols_of_bytes(token): rank for token, rank in vocabulary.items()}
        made = _byte_level(library, words, merges_of(vocabulary), use_regex=True)
    elif isinstance(tokenizer, ByteTokenizer):
        words = {symbols_of_bytes(bytes([byte])): byte for byte in range(256)}
        made = _byte_level(library, words, [], use_regex=False)
    elif isinstance(tokenizer, CharTokenizer):
        made = _characters(library, tokenizer)
    else:
        return None
    if tokenizer.separator_id is not None and made.token_to_id(SEPARATOR_TEXT) is None:
        made.add_special_tokens([SEPARATOR_TEXT])
        if made.token_to_id(SEPARATOR_TEXT) != tokenizer.separator_id:
            return None
    text: str = made.to_str()
    return text


def tokenizer_config(tokenizer: Tokenizer, block_size: int) -> str:
    """The text of tokenizer_config.json."""
    end = SEPARATOR_TEXT if tokenizer.separator_id is not None else None
    fields = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": block_size,
        "bos_token": end,
        "eos_token": end,
        "clean_up_tokenization_spaces": False,
    }
    return json.dumps(fields, indent=2) + "\n"


def merges_of(ranks: dict[bytes, int]) -> list[tuple[bytes, bytes]]:
    """The merges of a byte-level BPE whose ids are its ranks, in order."""
    merges = []
    for token, rank in sorted(ranks.items(), key=lambda item: item[1]):
        if len(token) > 1:
            left, right = _last_two_parts(token, rank, ranks)
            merges.append((left, right))
    return merges


def _last_two_parts(token: bytes, rank: int, ranks: dict[bytes, int]) -> tuple[bytes, bytes]:
    """What a token's bytes are when all merges before its own have been made."""
    parts = [token[index : index + 1] for index in range(len(token))]
    while len(parts) > 2:
        pairs = [ranks.get(a + b, rank) for a, b in pairwise(parts)]
        lowest = min(range(len(pairs)), key=pairs.__getitem__)
        assert pairs[lowest] < rank, token
        parts[lowest : lowest + 2] = [parts[lowest] + parts[lowest + 1]]
    return parts[0], parts[1]


def _byte_level(
    library: Any, words: dict[str, int], merges: list[tuple[bytes, bytes]], *, use_regex: bool
) -> Any:
    pairs = [(symbols_of_bytes(left), symbols_of_bytes(right)) for left, right in merges]
    made = library.Tokenizer(library.models.BPE(vocab=words, merges=pairs))
    made.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)
    made.decoder = library.decoders.ByteLevel()
    return made


def _characters(library: Any, tokenizer: CharTokenizer) -> Any:
    words = {character: number for number, character in enumerate(tokenizer.characters)}
    made = library.Tokenizer(library.models.WordLevel(vocab=words, unk_token="<none>"))
    every = library.Regex(r"[\s\S]")
    made.pre_tokenizer = library.pre_tokenizers.Split(every, behavior="isolated")
    made.decoder = library.decoders.Fuse()
    return made

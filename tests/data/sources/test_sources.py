import gzip
import hashlib
import importlib
import sysconfig
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from gptwright.data.sources import open_corpus
from gptwright.data.sources import text as text_module
from gptwright.data.sources.corpus import Document, Tally
from gptwright.data.sources.shakespeare import SHA256
from gptwright.errors import DataError
from gptwright.files import cache_folder


def read(path: Path, *, skip_bad: bool = False) -> tuple[list[Document], Tally]:
    tally = Tally()
    return list(open_corpus(str(path), skip_bad=skip_bad).documents(tally)), tally


def test_a_file_is_read_unchanged_but_for_its_mark(tmp_path: Path) -> None:
    path = tmp_path / "a.anything"
    path.write_bytes(b"\xef\xbb\xbf" + "one\r\ntwo\n😀\ufeff".encode())
    documents, tally = read(path)
    assert documents == [Document("a.anything", "one\r\ntwo\n😀\ufeff")]
    assert tally.bytes == path.stat().st_size
    assert tally.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_folder_is_read_in_the_order_of_relative_paths(tmp_path: Path) -> None:
    for name in ("b/z.txt", "b.txt", "a/deep/er/x.MD", "a.md", "no.py", "b/a.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    documents, tally = read(tmp_path)
    assert [document.name for document in documents] == [
        "a.md",
        "a/deep/er/x.MD",
        "b.txt",
        "b/a.txt",
        "b/z.txt",
    ]
    assert all(document.text == document.name for document in documents)
    lines = "".join(f"{hashlib.sha256(d.text.encode()).hexdigest()}  {d.name}\n" for d in documents)
    assert tally.sha256 == hashlib.sha256(lines.encode()).hexdigest()


def test_a_folder_without_text_says_what_it_holds(tmp_path: Path) -> None:
    for name in ("a.pdf", "b.pdf", "Makefile"):
        (tmp_path / name).touch()
    with pytest.raises(
        DataError, match=r"no \.txt or \.md file, at any depth; it holds 2 × \.pdf, 1 × no suffix"
    ):
        read(tmp_path)


def test_invalid_utf8_is_named_with_its_offset(tmp_path: Path) -> None:
    path = tmp_path / "bad.txt"
    path.write_bytes("é\n".encode() + b"ok\xff\xfe!" + b"x" * 20)
    with pytest.raises(DataError) as caught:
        read(path)
    assert f"{path} is not UTF-8: invalid bytes ff fe 21 78" in str(caught.value)
    assert "at byte offset 5" in str(caught.value)
    assert "--skip-bad" in str(caught.value)


def test_the_offset_counts_the_mark(tmp_path: Path) -> None:
    path = tmp_path / "bad.txt"
    path.write_bytes(b"\xef\xbb\xbfab\xff")
    with pytest.raises(DataError, match="byte offset 5"):
        read(path)


def test_utf16_is_recognized(tmp_path: Path) -> None:
    path = tmp_path / "wide.txt"
    path.write_bytes("hello".encode("utf-16"))
    with pytest.raises(DataError, match="byte offset 0; it begins with the mark of UTF-16"):
        read(path)


def test_skip_bad_leaves_out_and_lists(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"good")
    (tmp_path / "b.txt").write_bytes(b"ba\xffd")
    documents, tally = read(tmp_path, skip_bad=True)
    assert [document.text for document in documents] == ["good"]
    assert [(item.name, item.reason) for item in tally.skipped] == [("b.txt", "not UTF-8 at byte 2 (ff 64)")]


def test_an_empty_file_is_refused_alone_and_left_out_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "a.txt").touch()
    with pytest.raises(DataError, match=r"the corpus a\.txt has no text\s+- a\.txt: empty"):
        read(tmp_path / "a.txt")
    with pytest.raises(DataError, match="has no text"):
        read(tmp_path)
    (tmp_path / "b.txt").write_text("text")
    documents, tally = read(tmp_path)
    assert [document.name for document in documents] == ["b.txt"]
    assert [(item.name, item.reason) for item in tally.skipped] == [("a.txt", "empty")]


def test_a_large_file_comes_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_module, "_PART_BYTES", 100)
    text = "é😀 line of text\n" * 40 + "y" * 250 + "\nend"
    path = tmp_path / "large.txt"
    path.write_text(text, encoding="utf-8", newline="")
    documents, tally = read(path)
    assert "".join(document.text for document in documents) == text
    assert [document.part for document in documents] == list(range(len(documents)))
    assert len(documents) > 5
    assert all(document.text.endswith("\n") for document in documents[:-1])
    assert tally.bytes == len(text.encode())
    assert tally.documents == 1


def test_a_bad_part_of_a_large_file_is_left_out_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_module, "_PART_BYTES", 100)
    (tmp_path / "a.txt").write_text("good")
    (tmp_path / "b.txt").write_bytes(b"line\n" * 50 + b"\xff\n")
    documents, tally = read(tmp_path, skip_bad=True)
    assert [document.text for document in documents] == ["good", "line\n" * 21, "line\n" * 21]
    assert [(item.name, item.reason) for item in tally.skipped] == [
        ("b.txt bytes 210 to 252", "not UTF-8 at byte 250 (ff 0a)")
    ]


def test_an_unknown_source_names_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "mybook.txt").write_text("x")
    with pytest.raises(DataError, match=r"no file, folder or named corpus[\s\S]*did you mean 'mybook\.txt'"):
        open_corpus(str(tmp_path / "mybok.txt"))
    with pytest.raises(
        DataError, match=r"named corpora are shakespeare, pystdlib[\s\S]*did you mean 'shakespeare'"
    ):
        open_corpus("shakespear")
    with pytest.raises(DataError, match=r"--from x\.txt does not go with the source 'pystdlib'"):
        open_corpus("pystdlib", from_file=Path("x.txt"))


@pytest.mark.parametrize(
    ("address", "typed"),
    [
        ("https://example.org/a%20book.txt", "curl -LO https://example.org/a%20book.txt"),
        ("https://huggingface.co/datasets/owner/name/tree/main", "gptwright prepare hf:owner/name --out DIR"),
    ],
)
def test_an_address_says_how_it_becomes_a_file(address: str, typed: str) -> None:
    with pytest.raises(DataError, match="is an address, and a corpus is read from files") as caught:
        open_corpus(address)
    assert typed in str(caught.value)


def test_what_a_folder_holds_beside_its_texts_is_said(tmp_path: Path) -> None:
    for name in ("a.txt", "b.md", "c.pdf", "deep/d.pdf", "deep/e.docx"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("text")
    said: list[str] = []
    assert len(open_corpus(str(tmp_path), say=said.append).files) == 2
    assert said == [f"not read in {tmp_path}: 2 × .pdf, 1 × .docx; only its .txt, .md files are"]
    (tmp_path / "f.jsonl").write_text('{"text": "text"}\n')
    assert len(open_corpus(str(tmp_path), say=said.append).files) == 1
    assert "2 × .pdf, 1 × .txt, 1 × .md" in said[1]
    said.clear()
    open_corpus(str(tmp_path / "a.txt"), say=said.append)
    assert said == []


@pytest.mark.parametrize(
    ("names", "advice"),
    [
        (("a.pdf", "b.epub"), "save the documents' text as .txt"),
        (("a.txt.xz",), "unpack what is packed"),
        (("a.zip", "b.docx"), "unpack what is packed, and save the documents' text as .txt"),
        (("a.csv",), "give one file of it, whatever its name"),
        ((), "put text into it"),
    ],
)
def test_a_folder_without_text_says_what_makes_text_of_it(
    tmp_path: Path, names: tuple[str, ...], advice: str
) -> None:
    for name in names:
        (tmp_path / name).write_text("text")
    with pytest.raises(DataError, match=r"has no \.txt or \.md file") as caught:
        open_corpus(str(tmp_path))
    assert f"fix: {advice}" in str(caught.value)


@pytest.mark.parametrize(("module", "kind"), [("lzma", "xz"), ("bz2", "bzip2")])
def test_a_packed_text_is_named_by_its_mark(tmp_path: Path, module: str, kind: str) -> None:
    (tmp_path / "a").write_bytes(importlib.import_module(module).compress(b"text" * 99))
    with pytest.raises(DataError, match=f"begins with the mark of {kind}"):
        read(tmp_path / "a")


def test_pystdlib_is_this_pythons_source() -> None:
    corpus = open_corpus("pystdlib")
    names = [path.relative_to(corpus.root).as_posix() for path in corpus.files]
    assert "json/decoder.py" in names
    assert names == sorted(names)
    assert corpus.root == Path(sysconfig.get_path("stdlib"))
    left_out = {"test", "tests", "idle_test", "site-packages", "__pycache__"}
    assert not any(left_out & set(name.split("/")[:-1]) for name in names)


def test_shakespeare_is_checked_when_given(tmp_path: Path, shakespeare: Path) -> None:
    tally = Tally()
    (document,) = open_corpus("shakespeare", from_file=shakespeare).documents(tally)
    assert (len(document.text), tally.sha256) == (1_115_394, SHA256)
    other = tmp_path / "other.txt"
    other.write_text("To be")
    with pytest.raises(DataError) as caught:
        open_corpus("shakespeare", from_file=other)
    assert f"{other} is not Tiny Shakespeare: 5 bytes with sha256" in str(caught.value)
    assert "gptwright prepare FILE" in str(caught.value)
    with pytest.raises(DataError, match="cannot be read"):
        open_corpus("shakespeare", from_file=tmp_path / "absent")


class Answer:
    """What urlopen gives: a body, as a context manager."""

    def __init__(self, body: bytes) -> None:
        self.body = body

    def __enter__(self) -> "Answer":
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def read(self, size: int) -> bytes:
        return self.body[:size]


def test_shakespeare_is_downloaded_once(
    tmp_path: Path, shakespeare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPTWRIGHT_CACHE", str(tmp_path / "cache"))
    calls: list[Any] = []

    def urlopen(url: str, timeout: float) -> Answer:
        calls.append((url, timeout))
        return Answer(shakespeare.read_bytes())

    monkeypatch.setattr(urllib.request, "urlopen", urlopen)
    first, second = open_corpus("shakespeare"), open_corpus("shakespeare")
    assert first == second
    assert len(calls) == 1
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["tinyshakespeare.txt"]


def test_a_wrong_or_failed_download_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPTWRIGHT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(urllib.request, "urlopen", lambda url, timeout: Answer(b"<html>log in</html>"))
    with pytest.raises(DataError, match=r"input\.txt is not Tiny Shakespeare: 19 bytes"):
        open_corpus("shakespeare")

    def unreachable(url: str, timeout: float) -> Answer:
        raise urllib.error.URLError("no network")

    monkeypatch.setattr(urllib.request, "urlopen", unreachable)
    with pytest.raises(
        DataError, match=r"could not be downloaded from https://.*: no network[\s\S]*--from FILE"
    ):
        open_corpus("shakespeare")
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize(
    ("platform", "expected"),
    [
        ("linux", ".cache/gptwright"),
        ("darwin", "Library/Caches/gptwright"),
        ("win32", "AppData/Local/gptwright"),
    ],
)
def test_the_cache_is_where_the_platform_keeps_caches(
    platform: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("GPTWRIGHT_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    monkeypatch.setattr("sys.platform", platform)
    assert cache_folder() == tmp_path / expected


@pytest.mark.parametrize(
    ("begin", "guess", "fix"),
    [
        (b"\xff\xfea\x00", "the mark of UTF-16", "iconv -f UTF-16 -t UTF-8"),
        (gzip.compress(b"text", mtime=0), "the mark of gzip", "gunzip"),
        (b"\x28\xb5\x2f\xfd\xff", "the mark of zstd", "zstd -d"),
        (b"PK\x03\x04\xff", "the mark of zip", "unpack it"),
        (b"%PDF-1.7\n\xe2\xe3", "the mark of PDF", "pdftotext"),
    ],
)
def test_what_no_text_is_by_its_beginning_is_said_with_what_helps(
    tmp_path: Path, begin: bytes, guess: str, fix: str
) -> None:
    (tmp_path / "a.txt").write_bytes(begin)
    with pytest.raises(DataError) as caught:
        read(tmp_path / "a.txt")
    assert guess in str(caught.value)
    assert fix in str(caught.value)


def test_utf16_without_its_mark_is_refused_and_a_stray_zero_is_not(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(("To be, or not to be\n" * 200).encode("utf-16-le"))
    with pytest.raises(DataError, match=r"2,048 of 4,096 bytes from 0 on are zero[\s\S]*UTF-16LE"):
        read(tmp_path / "a.txt")
    (tmp_path / "b.txt").write_text("To be,\0 or not to be\n" * 200)
    assert len(read(tmp_path / "b.txt")[0]) == 1


def test_hidden_files_of_a_folder_are_no_corpus(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    for name in ("a.txt", "._a.txt", ".git/b.txt"):
        (tmp_path / name).write_text(f"in {name}")
    assert [document.text for document in read(tmp_path)[0]] == ["in a.txt"]

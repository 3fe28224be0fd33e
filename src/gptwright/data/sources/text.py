"""Text files: one, or a folder of them.

A folder is searched for *.txt and *.md at any depth, but not for hidden ones, and read in the order of the
relative paths, so that a corpus is the same on every file system. A single file may have any name.

One file is one document. A file above 8 MiB comes in parts that end at line ends (at a space where there is
no line end near, so that a file of one endless line is read too), and memory stays bounded by the part. Bytes
are decoded as strict UTF-8 and nothing is rewritten: CRLF stays CRLF, and only a byte order mark at the start
is dropped.
"""

import codecs
import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

from gptwright.data.sources.corpus import (
    UNIT_BYTES,
    Corpus,
    Document,
    Tally,
    Unit,
    UnusableError,
    batched_by_size,
    files_below,
    unreadable,
)
from gptwright.errors import DataError

TEXT_SUFFIXES = (".txt", ".md")

# In memory it may take four bytes a character, several times over: below 150 MB in all.
_PART_BYTES = 8 * 1024 * 1024
# How files begin that people take for text, what that is, and what makes text of it.
_MARKS = (
    (codecs.BOM_UTF16_LE, "UTF-16", "save the file as UTF-8 (iconv -f UTF-16 -t UTF-8)"),
    (codecs.BOM_UTF16_BE, "UTF-16", "save the file as UTF-8 (iconv -f UTF-16 -t UTF-8)"),
    (b"\x1f\x8b", "gzip", "unpack it (gunzip)"),
    (b"\x28\xb5\x2f\xfd", "zstd", "unpack it (zstd -d)"),
    (b"\xfd7zXZ\x00", "xz", "unpack it (unxz)"),
    (b"BZh", "bzip2", "unpack it (bunzip2)"),
    (b"7z\xbc\xaf\x27\x1c", "7-Zip", "unpack it (7z x)"),
    (b"PK\x03\x04", "zip, as Word's documents and e-books are", "unpack it, or save its text as .txt"),
    (b"%PDF", "PDF", "save its text as .txt (pdftotext)"),
)
# What makes text of the files of a folder that has none, by how they are called.
_ADVICE = (
    ((".zip", ".gz", ".xz", ".bz2", ".zst", ".7z", ".tar", ".tgz"), "unpack what is packed"),
    (
        (".pdf", ".epub", ".docx", ".doc", ".odt", ".rtf", ".html", ".htm"),
        "save the documents' text as .txt (pandoc and pdftotext do)",
    ),
)
# Every second byte of English in UTF-16 is zero, which is valid UTF-8; a text has none, or a few by accident.
_LOOK_BYTES, _ZERO_SHARE = 4096, 1 / 8
# How far a line end, then a space, is looked for; beyond, a part ends inside a word.
_SEARCH_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class TextReader:
    """Reads text files."""

    kind: str = "text"
    # A file may be a whole library: its pieces are drawn, so that one long file can be split at all.
    whole_documents: bool = False

    def units(self, corpus: Corpus, tally: Tally) -> Iterator[Unit]:
        """Small files together, large ones in ranges."""
        parts: list[tuple[TextPart, int]] = []
        for path in corpus.files:
            name = corpus.name_of(path)
            try:
                parts += [(part, part.end - part.start) for part in _parts(path, name)]
            except OSError as error:
                unreadable(path, name, error).count_or_raise(tally, skip_bad=corpus.skip_bad)
            except UnusableError as unusable:
                unusable.count_or_raise(tally, skip_bad=corpus.skip_bad)
        for group in batched_by_size(parts, UNIT_BYTES):
            yield TextUnit(tuple(group), corpus.skip_bad)


@dataclass(frozen=True, slots=True)
class TextPart:
    """A range of bytes of a file; `number` 0 begins it, and `alone` says that there is no other."""

    path: Path
    name: str
    start: int
    end: int
    number: int
    alone: bool


@dataclass(frozen=True, slots=True)
class TextUnit:
    """Ranges of text files."""

    parts: tuple[TextPart, ...]
    skip_bad: bool

    @property
    def size(self) -> int:
        """The size of the ranges."""
        return sum(part.end - part.start for part in self.parts)

    def read(self, tally: Tally) -> Iterator[Document]:
        """One document a range."""
        for part in self.parts:
            try:
                document = _read(part, tally)
            except OSError as error:
                unreadable(part.path, part.name, error).count_or_raise(tally, skip_bad=self.skip_bad)
            except UnusableError as unusable:
                unusable.count_or_raise(tally, skip_bad=self.skip_bad)
            else:
                if document.text:
                    yield document


def text_corpus(path: Path, *, skip_bad: bool) -> Corpus:
    """The corpus in a text file, or in the text files of a folder.

    Raises:
        DataError: the folder holds no text files; what it does hold is said.
    """
    if not path.is_dir():
        return Corpus(name=path.name, root=path.parent, files=(path,), skip_bad=skip_bad, reader=TextReader())
    everything = files_below(path)
    files = sorted(
        (found for found in everything if found.suffix.lower() in TEXT_SUFFIXES),
        key=lambda found: found.relative_to(path).as_posix(),
    )
    if not files:
        raise DataError(
            f"the folder {path} has no .txt or .md file, at any depth; it holds {summary_of(everything)}",
            why="only those, .parquet and .jsonl (.gz, .zst) are read from a folder",
            fix=_advice(everything),
        )
    name = path.resolve().name
    return Corpus(name=name, root=path, files=tuple(files), skip_bad=skip_bad, reader=TextReader())


def _parts(path: Path, name: str) -> list[TextPart]:
    size = path.stat().st_size
    if not size:
        raise UnusableError(
            name,
            "empty",
            DataError(f"{path} is empty", why="there is nothing to train on", fix="give a file with text"),
            harmless=True,
        )
    bounds = [0]
    if size > _PART_BYTES:
        with path.open("rb") as file:
            while bounds[-1] + _PART_BYTES < size:
                bounds.append(_bound_after(file, bounds[-1] + _PART_BYTES))
    bounds.append(size)
    spans = [(start, end) for start, end in pairwise(bounds) if start < end]
    return [
        TextPart(path, name, start, end, number, alone=len(spans) == 1)
        for number, (start, end) in enumerate(spans)
    ]


def _bound_after(file: BinaryIO, position: int) -> int:
    """The nearest good end of a part: after a newline, else before a space, else between characters."""
    file.seek(position)
    ahead = file.read(_SEARCH_BYTES)
    newline = ahead.find(b"\n")
    if newline >= 0:
        return position + newline + 1
    space = ahead.find(b" ")
    if space >= 0:
        return position + space
    # A byte 10xxxxxx goes on a character that began before.
    inside = next((index for index, byte in enumerate(ahead[:4]) if byte & 0xC0 != 0x80), 0)
    return position + inside


def _read(part: TextPart, tally: Tally) -> Document:
    with part.path.open("rb") as file:
        file.seek(part.start)
        block = file.read(part.end - part.start)
    body = block.removeprefix(codecs.BOM_UTF8) if part.number == 0 else block
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        at = part.start + len(block) - len(body) + error.start
        raise _invalid_utf8(part, at, body[error.start : error.start + 8], block) from None
    head = body[:_LOOK_BYTES]
    if head.count(0) > _ZERO_SHARE * len(head):
        raise _zeros(part, head)
    name = _called(part)
    tally.add(name, len(block), hashlib.sha256(block).hexdigest(), documents=int(part.number == 0))
    return Document(part.name, text, part.number)


def _invalid_utf8(part: TextPart, offset: int, seen: bytes, block: bytes) -> UnusableError:
    shown = seen.hex(" ")
    marks = ((kind, fix) for mark, kind, fix in _MARKS if part.number == 0 and block.startswith(mark))
    kind, fix = next(marks, ("", "save the file as UTF-8"))
    guess = f"; it begins with the mark of {kind}" if kind else ""
    return UnusableError(
        _called(part),
        f"not UTF-8 at byte {offset} ({shown})",
        DataError(
            f"{part.path} is not UTF-8: invalid bytes {shown} at byte offset {offset}{guess}",
            why="guessing an encoding would silently train on wrong characters",
            fix=f"{fix}, or leave such files out with --skip-bad",
        ),
    )


def _zeros(part: TextPart, head: bytes) -> UnusableError:
    seen = f"{head.count(0):,} of {len(head):,} bytes from {part.start} on are zero"
    return UnusableError(
        _called(part),
        seen,
        DataError(
            f"{part.path} is no UTF-8 text: {seen}",
            why="it is UTF-16 without its mark, or no text, and would be trained on zeros and all",
            fix="save it as UTF-8 (iconv -f UTF-16LE -t UTF-8), or leave such files out with --skip-bad",
        ),
    )


def _called(part: TextPart) -> str:
    return part.name if part.alone else f"{part.name} bytes {part.start} to {part.end}"


def summary_of(files: list[Path]) -> str:
    """How many files of which kind, the most frequent five: `3 × .pdf, 1 × .zip`."""
    if not files:
        return "no files"
    kinds = Counter(file.suffix or "no suffix" for file in files)
    return ", ".join(f"{number} × {kind}" for kind, number in kinds.most_common(5))


def _advice(files: list[Path]) -> str:
    if not files:
        return "put text into it, as .txt or .md files"
    suffixes = {file.suffix.lower() for file in files}
    fitting = [advice for kinds, advice in _ADVICE if suffixes.intersection(kinds)]
    return (
        ", and ".join(fitting) or "give one file of it, whatever its name, or rename the text files to .txt"
    )

"""A corpus is a list of files, read as a stream of documents.

One file is one document. A file above 64 MiB comes in parts that end at line ends, so that memory stays
bounded by the part and not by the file. Bytes are decoded as strict UTF-8 and nothing is rewritten: CRLF
stays CRLF, and only a byte order mark at the start is dropped. Every reading computes the sha256 of what it
read, so that a file that changes between two passes is noticed.
"""

import codecs
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from gptwright.errors import DataError

_PART_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Document:
    """A piece of text with a name: a whole file, or one part of a large one.

    Attributes:
        name: the file's path inside the corpus, with forward slashes.
        text: its text.
        part: 0 for the start of a file; above 0, the text goes on where the previous document stopped.
    """

    name: str
    text: str
    part: int = 0


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file that was left out, and why."""

    name: str
    reason: str


@dataclass(slots=True)
class Tally:
    """What one reading of a corpus saw."""

    documents: int = 0
    bytes: int = 0
    skipped: list[Skipped] = field(default_factory=list)
    _lines: list[str] = field(default_factory=list)

    def add(self, name: str, size: int, sha256: str) -> None:
        """Counts a document that was read to its end."""
        self.documents += 1
        self.bytes += size
        self._lines.append(f"{sha256}  {name}\n")

    @property
    def sha256(self) -> str:
        """One file: its sha256. Several: the sha256 of the lines that `sha256sum` would print for them."""
        if len(self._lines) == 1:
            return self._lines[0].split()[0]
        return hashlib.sha256("".join(self._lines).encode("utf-8")).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """Files that are read as documents, in the order given.

    Attributes:
        name: what the corpus is called in a manifest.
        root: the folder that document names are relative to.
        files: the files, each under `root`.
        skip_bad: leave out files that are not UTF-8, instead of stopping at them.
    """

    name: str
    root: Path
    files: tuple[Path, ...]
    skip_bad: bool

    @property
    def total_bytes(self) -> int:
        """The size of all files, from the file system."""
        return sum(path.stat().st_size for path in self.files if path.exists())

    def documents(self, tally: Tally) -> Iterator[Document]:
        """Reads every file; what was read and what was left out is counted in `tally`.

        Raises:
            DataError: a file is unreadable or not UTF-8 and `skip_bad` is off, or nothing is left to read.
        """
        for path in self.files:
            name = path.relative_to(self.root).as_posix()
            try:
                yield from _read(path, name, tally)
            except _UnusableFileError as unusable:
                if not (self.skip_bad or unusable.harmless):
                    raise unusable.error from None
                tally.skipped.append(Skipped(name, unusable.reason))
        if not tally.documents:
            reasons = "".join(f"\n  - {item.name}: {item.reason}" for item in tally.skipped[:5])
            raise DataError(
                f"the corpus {self.name} has no text{reasons}",
                why="there is nothing to train on",
                fix="give a file or folder with UTF-8 text in it",
            )


class _UnusableFileError(Exception):
    """Internal: a file that cannot be a document, before it is decided whether that stops the work."""

    def __init__(self, reason: str, error: DataError, *, harmless: bool = False) -> None:
        self.reason = reason
        self.error = error
        self.harmless = harmless
        super().__init__(reason)


def _read(path: Path, name: str, tally: Tally) -> Iterator[Document]:
    try:
        with path.open("rb") as file:
            if path.stat().st_size > _PART_BYTES:
                # A large file is checked whole first, so that a bad one is never half a document.
                for _ in _decoded(file, path, name, Tally()):
                    pass
                file.seek(0)
            yield from _decoded(file, path, name, tally)
    except OSError as error:
        raise _UnusableFileError(
            f"cannot be read: {error.strerror}",
            DataError(
                f"{path} cannot be read: {error.strerror}",
                fix="mend the file's permissions, or leave unreadable files out with --skip-bad",
            ),
        ) from None


def _decoded(file: BinaryIO, path: Path, name: str, tally: Tally) -> Iterator[Document]:
    digest = hashlib.sha256()
    size, part, carried = 0, 0, b""
    while block := file.read(_PART_BYTES):
        digest.update(block)
        size += len(block)
        block = carried + block
        # A newline byte is never inside a UTF-8 character, so a part may end there.
        end = len(block) if len(block) < _PART_BYTES else block.rfind(b"\n") + 1
        carried = block[end:]
        if end:
            yield from _part(block[:end], size - len(block), path, name, part)
            part += 1
    if carried:
        yield from _part(carried, size - len(carried), path, name, part)
    if not size:
        raise _UnusableFileError(
            "empty",
            DataError(f"{path} is empty", why="there is nothing to train on", fix="give a file with text"),
            harmless=True,
        )
    tally.add(name, size, digest.hexdigest())


def _part(block: bytes, offset: int, path: Path, name: str, part: int) -> Iterator[Document]:
    body = block.removeprefix(codecs.BOM_UTF8) if part == 0 else block
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        at = offset + len(block) - len(body) + error.start
        raise _invalid_utf8(path, at, body[error.start : error.start + 8], block) from None
    if text:
        yield Document(name, text, part)


def _invalid_utf8(path: Path, offset: int, seen: bytes, block: bytes) -> _UnusableFileError:
    shown = seen.hex(" ")
    utf16 = block.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    guess = "; it begins with the mark of UTF-16" if utf16 else ""
    reason = f"not UTF-8 at byte {offset} ({shown})"
    return _UnusableFileError(
        reason,
        DataError(
            f"{path} is not UTF-8: invalid bytes {shown} at byte offset {offset}{guess}",
            why="guessing an encoding would silently train on wrong characters",
            fix="save the file as UTF-8, or leave such files out with --skip-bad",
        ),
    )

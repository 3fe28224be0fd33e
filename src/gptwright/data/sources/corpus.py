"""A corpus is a list of files, read as a stream of documents, unit by unit.

A unit is some 32 MiB of text that can be read without its neighbours: a few files, a byte range of a large
one, a few row groups of a Parquet file. Which units there are follows from the files alone, so work can be
spread over processes and taken up again after a kill, and the result does not depend on either.

Every reading computes a hash of what it read, so that a file that changes between two passes is noticed.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeVar

from gptwright.errors import DataError

Item = TypeVar("Item")

# Work for a few seconds: small enough that a kill loses little, large enough that starting it costs nothing.
UNIT_BYTES = 32 * 1024 * 1024

# What is listed by name; the count goes on.
_MOST_LISTED = 1000


@dataclass(frozen=True, slots=True)
class Document:
    """A piece of text with a name: a file, a record of one, or one part of a large file.

    Attributes:
        name: the file's path inside the corpus, with forward slashes.
        text: its text.
        part: 0 for the start of a document; above 0, the text goes on where the previous document stopped.
    """

    name: str
    text: str
    part: int = 0


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file or record that was left out, and why."""

    name: str
    reason: str


@dataclass(slots=True)
class Tally:
    """What one reading saw.

    Attributes:
        documents: with text in them, that were read.
        bytes: of their text; for text files, of the files.
        bad: what was left out because it is broken.
        skipped: the first thousand of them, by name.
        filtered: records that the filters left out.
        empty: records without any text.
        lines: name and hash of each thing that was read.
    """

    documents: int = 0
    bytes: int = 0
    bad: int = 0
    skipped: list[Skipped] = field(default_factory=list)
    filtered: int = 0
    empty: int = 0
    lines: list[str] = field(default_factory=list)

    def add(self, name: str, size: int, sha256: str, *, documents: int = 1) -> None:
        """Counts documents that were read to their end."""
        self.documents += documents
        self.bytes += size
        self.lines.append(f"{sha256}  {name}\n")

    def skip(self, name: str, reason: str) -> None:
        """Counts something that was left out."""
        self.bad += 1
        if len(self.skipped) < _MOST_LISTED:
            self.skipped.append(Skipped(name, reason))

    def merge(self, other: "Tally") -> None:
        """Adds what a reading of the following units saw."""
        self.documents += other.documents
        self.bytes += other.bytes
        self.bad += other.bad
        self.skipped += other.skipped[: _MOST_LISTED - len(self.skipped)]
        self.filtered += other.filtered
        self.empty += other.empty
        self.lines += other.lines

    @property
    def sha256(self) -> str:
        """One text file: its sha256. Several: the sha256 of the lines that `sha256sum` would print for them.

        A range of a file and the records of a file count as a file here; what is hashed of records is their
        text.
        """
        if len(self.lines) == 1:
            return self.lines[0].split()[0]
        return hashlib.sha256("".join(self.lines).encode("utf-8")).hexdigest()


class Content:
    """What the texts of a unit come to, as they are read.

    Attributes:
        documents: how many.
        size: their bytes.
    """

    def __init__(self) -> None:
        self.documents = self.size = 0
        self._digest = hashlib.sha256()

    def add(self, text: str) -> None:
        """Counts the next text."""
        encoded = text.encode("utf-8")
        # With its length, so that two texts are not the same as one that is both.
        self._digest.update(len(encoded).to_bytes(8, "little") + encoded)
        self.size += len(encoded)
        self.documents += 1

    @property
    def sha256(self) -> str:
        """Of all texts so far."""
        return self._digest.hexdigest()


class Unit(Protocol):
    """What one process reads at a time. It can be sent to another process."""

    @property
    def size(self) -> int:
        """About how many bytes of text it holds."""

    def read(self, tally: Tally) -> Iterator[Document]:
        """Its documents; what was read and what was left out is counted in `tally`.

        Raises:
            DataError: something is broken and was not to be skipped.
        """


class Reader(Protocol):
    """How the files of a corpus become units."""

    @property
    def kind(self) -> str:
        """`text`, `parquet` or `jsonl`."""

    @property
    def whole_documents(self) -> bool:
        """Whether a document goes to one side of the split as a whole, however long it is."""

    def units(self, corpus: "Corpus", tally: Tally) -> Iterator[Unit]:
        """The units, in order; files that cannot be used are counted in `tally`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """Files that are read as documents, in the order given.

    Attributes:
        name: what the corpus is called in a manifest.
        root: the folder that document names are relative to.
        files: the files, each under `root`.
        skip_bad: leave out what is broken, instead of stopping at it.
        reader: what kind of files they are.
    """

    name: str
    root: Path
    files: tuple[Path, ...]
    skip_bad: bool
    reader: Reader

    @property
    def total_bytes(self) -> int:
        """The size of all files, from the file system."""
        return sum(path.stat().st_size for path in self.files if path.exists())

    @property
    def state(self) -> list[tuple[str, int, int]]:
        """Name, size and time of change of every file: equal for a corpus that was not touched."""
        found = ((path, path.stat()) for path in self.files if path.exists())
        return [(self.name_of(path), stat.st_size, stat.st_mtime_ns) for path, stat in found]

    def name_of(self, path: Path) -> str:
        """A file's name inside the corpus."""
        return path.relative_to(self.root).as_posix()

    def units(self, tally: Tally) -> list[Unit]:
        """What can be read on its own, in the order of the corpus."""
        return list(self.reader.units(self, tally))

    def documents(self, tally: Tally) -> Iterator[Document]:
        """Reads everything in order; what was read and what was left out is counted in `tally`.

        Raises:
            DataError: something is broken and `skip_bad` is off, or there is no text.
        """
        for unit in self.units(tally):
            yield from unit.read(tally)
        require_text(self.name, tally)


def require_text(name: str, tally: Tally) -> None:
    """Refuses a corpus in which no document has text; what was left out is named."""
    if tally.documents:
        return
    reasons = "".join(f"\n  - {item.name}: {item.reason}" for item in tally.skipped[:5])
    if tally.filtered:
        reasons += f"\n  - {tally.filtered:,} records left out by --where"
    if tally.empty:
        reasons += f"\n  - {tally.empty:,} records without text"
    raise DataError(
        f"the corpus {name} has no text{reasons}",
        why="there is nothing to train on",
        fix="give a file or folder with UTF-8 text in it" if not tally.filtered else "a wider --where",
    )


class UnusableError(Exception):
    """Internal: something that cannot be a document, before it is decided whether that stops the work.

    Args:
        name: what it is.
        reason: what is wrong, for the list of what was left out.
        error: what is raised where nothing may be left out.
        harmless: whether it is left out without being asked.
    """

    def __init__(self, name: str, reason: str, error: DataError, *, harmless: bool = False) -> None:
        self.name = name
        self.reason = reason
        self.error = error
        self.harmless = harmless
        super().__init__(reason)

    def count_or_raise(self, tally: Tally, *, skip_bad: bool) -> None:
        """Counts it where that is allowed, else raises the error."""
        if not (skip_bad or self.harmless):
            raise self.error from None
        tally.skip(self.name, self.reason)


def unreadable(path: Path, name: str, error: OSError) -> UnusableError:
    """A file that the system does not let us read."""
    return UnusableError(
        name,
        f"cannot be read: {error.strerror}",
        DataError(
            f"{path} cannot be read: {error.strerror}",
            fix="mend the file's permissions, or leave unreadable files out with --skip-bad",
        ),
    )


def files_below(folder: Path) -> list[Path]:
    """All files of a folder at any depth but the hidden ones, which are a system's or an editor's own."""
    return [
        found
        for found in folder.rglob("*")
        if found.is_file() and not any(part.startswith(".") for part in found.relative_to(folder).parts)
    ]


def batched_by_size(items: Sequence[tuple[Item, int]], limit: int) -> Iterator[list[Item]]:
    """Neighbouring items in groups that together reach at most `limit`, or hold one item."""
    group: list[Item] = []
    total = 0
    for item, size in items:
        if group and total + size > limit:
            yield group
            group, total = [], 0
        group.append(item)
        total += size
    if group:
        yield group

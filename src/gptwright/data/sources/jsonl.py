"""JSONL files (.jsonl, .ndjson; .gz and .zst too): one line is one record is one document.

A plain file is read in ranges of 32 MiB: a line belongs to the range in which it begins. A compressed one can
only be read from its start, so it is one unit. A line above 64 MiB is refused, because it would have to be
held whole to be understood.
"""

import gzip
import io
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

from gptwright.data.sources.corpus import (
    UNIT_BYTES,
    Content,
    Corpus,
    Document,
    Tally,
    Unit,
    UnusableError,
    unreadable,
)
from gptwright.data.sources.records import RecordOptions, missing_column, not_comparable
from gptwright.data.tokenizer_base import import_extra
from gptwright.errors import DataError

JSONL_SUFFIXES = tuple(f"{kind}{packed}" for kind in (".jsonl", ".ndjson") for packed in ("", ".gz", ".zst"))

_LONGEST_LINE = 64 * 1024 * 1024
_READ_BYTES = 1024 * 1024
# JSON of running text packs to about a third; only the progress bar depends on it.
_PACKED = 3


@dataclass(frozen=True, slots=True)
class JsonlReader:
    """Reads JSONL files."""

    options: RecordOptions
    kind: str = "jsonl"
    whole_documents: bool = True

    def units(self, corpus: Corpus, tally: Tally) -> Iterator[Unit]:
        """Ranges of plain files, compressed files whole."""
        for path in corpus.files:
            name = corpus.name_of(path)
            try:
                size = path.stat().st_size
            except OSError as error:
                unreadable(path, name, error).count_or_raise(tally, skip_bad=corpus.skip_bad)
                continue
            if not size:
                tally.skip(name, "empty")
            elif path.suffix in (".gz", ".zst"):
                yield JsonlUnit(path, name, 0, None, size * _PACKED, self.options, corpus.skip_bad)
            else:
                for start in range(0, size, UNIT_BYTES):
                    end = min(size, start + UNIT_BYTES)
                    yield JsonlUnit(path, name, start, end, end - start, self.options, corpus.skip_bad)


@dataclass(frozen=True, slots=True)
class JsonlUnit:
    """The lines that begin in a range of a file; `end` None reads a compressed one to its end."""

    path: Path
    name: str
    start: int
    end: int | None
    size: int
    options: RecordOptions
    skip_bad: bool

    def read(self, tally: Tally) -> Iterator[Document]:
        """One document a line that has text and fulfils the conditions."""
        read = Content()
        try:
            for number, offset, line in self._lines():
                try:
                    text = self._text(line, number, offset, tally)
                except UnusableError as unusable:
                    unusable.count_or_raise(tally, skip_bad=self.skip_bad)
                    continue
                if text is None:
                    continue
                read.add(text)
                yield Document(self.name, text)
        except OSError as error:
            unreadable(self.path, self.name, error).count_or_raise(tally, skip_bad=self.skip_bad)
        except UnusableError as unusable:
            unusable.count_or_raise(tally, skip_bad=self.skip_bad)
        tally.add(f"{self.name} from {self.start}", read.size, read.sha256, documents=read.documents)

    def _lines(self) -> Iterator[tuple[int, int, bytes | None]]:
        """Number in this unit, offset, and content of each line; None for one that is too long."""
        position = self.start
        with self._open() as file:
            try:
                if self.start:
                    # The line that holds the byte before the range belongs to the range before.
                    file.seek(self.start - 1)
                    position = self.start - 1 + _skip_line(file)
                number = 0
                while self.end is None or position < self.end:
                    line = file.readline(_LONGEST_LINE + 1)
                    if not line:
                        return
                    length = len(line)
                    too_long = length > _LONGEST_LINE and not line.endswith(b"\n")
                    if too_long:
                        length += _skip_line(file)
                    yield number, position, None if too_long else line
                    position += length
                    number += 1
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                raise self._damaged(error) from None
            except OSError as error:
                if error.errno:
                    raise
                raise self._damaged(error) from None

    def _open(self) -> BinaryIO:
        if self.path.suffix == ".gz":
            return cast("BinaryIO", gzip.open(self.path, "rb"))
        if self.path.suffix == ".zst":
            arrow = import_extra("pyarrow", "reading .zst files", extra="data")
            stream = arrow.input_stream(str(self.path), compression="zstd")
            return cast("BinaryIO", io.BufferedReader(cast("io.RawIOBase", stream), _READ_BYTES))
        return self.path.open("rb", buffering=_READ_BYTES)

    def _text(self, line: bytes | None, number: int, offset: int, tally: Tally) -> str | None:
        """The text of a line's record; None where there is none or a condition leaves it out."""
        if line is not None and not line.strip():
            return None
        if line is None:
            raise self._broken(number, offset, f"longer than {_LONGEST_LINE // 2**20} MiB")
        try:
            record = json.loads(line.rstrip(b"\r\n"))
        except UnicodeDecodeError as error:
            shown = line[error.start : error.start + 8].hex(" ")
            raise self._broken(number, offset, f"not UTF-8 at byte {error.start} of it ({shown})") from None
        except (ValueError, RecursionError) as error:
            reason = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
            raise self._broken(number, offset, f"not JSON: {reason}") from None
        if not isinstance(record, dict):
            raise self._broken(number, offset, f"JSON of a {type(record).__name__}, not an object")
        return self._chosen(record, number, offset, tally)

    def _chosen(self, record: dict[str, Any], number: int, offset: int, tally: Tally) -> str | None:
        for column in self.options.columns:
            if column not in record:
                place = self._place(number)
                texts = [name for name, value in record.items() if isinstance(value, str)]
                error = missing_column(f"{place} of {self.path}", column, list(record), texts, self.options)
                raise UnusableError(f"{self.name} {place}", f"no column '{column}'", error)
        for condition in self.options.where:
            value = record[condition.column]
            try:
                holds = condition.holds(value)
            except TypeError:
                raise not_comparable(str(self.path), condition, type(value).__name__) from None
            if not holds:
                tally.filtered += 1
                return None
        text = record[self.options.text_column]
        if text is None or text == "":
            tally.empty += 1
            return None
        if not isinstance(text, str):
            raise self._broken(number, offset, f"'{self.options.text_column}' is a {type(text).__name__}")
        if not _has_utf8(text):
            raise self._broken(number, offset, "half of a surrogate pair in its text")
        return text

    def _place(self, number: int) -> str:
        """`line N`, counted over the whole file; only messages need it, so nothing is counted before."""
        before = 0
        if self.start:
            with self.path.open("rb") as file:
                left = self.start
                while left and (block := file.read(min(left, 16 * _READ_BYTES))):
                    before += block.count(b"\n")
                    left -= len(block)
                file.seek(self.start - 1)
                # Inside a line, the range's first own line is the next one.
                before += file.read(1) != b"\n"
        return f"line {before + number + 1}"

    def _broken(self, number: int, offset: int, reason: str) -> UnusableError:
        place = self._place(number)
        return UnusableError(
            f"{self.name} {place}",
            reason,
            DataError(
                f"{place} of {self.path} (at byte {offset}) is {reason}",
                why="every line must be one JSON object with a text",
                fix="mend the line, or leave such lines out with --skip-bad",
            ),
        )

    def _damaged(self, error: Exception) -> UnusableError:
        return UnusableError(
            self.name,
            f"not whole: {error}",
            DataError(
                f"{self.path} is truncated or damaged: {error}",
                why="what is missing of it cannot be guessed",
                fix="get the file again, or keep what can be read of it with --skip-bad",
            ),
        )


def _skip_line(file: BinaryIO) -> int:
    """Reads to the end of the line without holding it; returns how many bytes that were."""
    skipped = 0
    while block := file.readline(_READ_BYTES):
        skipped += len(block)
        if block.endswith(b"\n"):
            break
    return skipped


def _has_utf8(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True

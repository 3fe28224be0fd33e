"""Parquet files, such as FineWeb's and FineWeb-Edu's: one record is one document.

Only the column of the text and those that a condition names are read, a thousand records at a time and with
pages streamed from the disk, so that a row group of any size takes little memory. A unit is a few row groups;
one row group that is larger than a unit is read alone.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gptwright.data.sources.corpus import (
    UNIT_BYTES,
    Content,
    Corpus,
    Document,
    Tally,
    Unit,
    UnusableError,
    batched_by_size,
    unreadable,
)
from gptwright.data.sources.records import Condition, RecordOptions, missing_column, not_comparable
from gptwright.data.tokenizer_base import import_extra
from gptwright.errors import DataError

PARQUET_SUFFIXES = (".parquet",)

# FineWeb's documents have 3 to 5 kB: some megabytes at a time.
_ROWS_AT_A_TIME = 1024
_STREAM_BYTES = 1024 * 1024
_TEXT_TYPES = ("string", "large_string", "string_view")


@dataclass(frozen=True, slots=True)
class ParquetReader:
    """Reads Parquet files."""

    options: RecordOptions
    kind: str = "parquet"
    whole_documents: bool = True

    def units(self, corpus: Corpus, tally: Tally) -> Iterator[Unit]:
        """Row groups, as many as make a unit."""
        for path in corpus.files:
            name = corpus.name_of(path)
            try:
                sizes = _row_groups(path, name, self.options)
            except UnusableError as unusable:
                unusable.count_or_raise(tally, skip_bad=corpus.skip_bad)
                continue
            for group in batched_by_size(list(enumerate(sizes)), UNIT_BYTES):
                size = sum(sizes[number] for number in group)
                yield ParquetUnit(path, name, tuple(group), size, self.options, corpus.skip_bad)


@dataclass(frozen=True, slots=True)
class ParquetUnit:
    """Some row groups of a file."""

    path: Path
    name: str
    groups: tuple[int, ...]
    size: int
    options: RecordOptions
    skip_bad: bool

    def read(self, tally: Tally) -> Iterator[Document]:
        """One document a record that has text and fulfils the conditions."""
        read = Content()
        where = f"{self.name} row groups {self.groups[0]} to {self.groups[-1]}"
        try:
            for text in self._texts(where, tally):
                read.add(text)
                yield Document(self.name, text)
        except UnusableError as unusable:
            unusable.count_or_raise(tally, skip_bad=self.skip_bad)
        tally.add(where, read.size, read.sha256, documents=read.documents)

    def _texts(self, where: str, tally: Tally) -> Iterator[str]:
        file = _open(self.path, self.name)
        arrow = import_extra("pyarrow", "reading Parquet", extra="data")
        batches = file.iter_batches(
            _ROWS_AT_A_TIME, row_groups=list(self.groups), columns=self.options.columns
        )
        with file:
            while True:
                try:
                    batch = next(batches)
                except StopIteration:
                    return
                except (OSError, arrow.ArrowException) as error:
                    raise _damaged(self.path, where, error) from None
                before = len(batch)
                for condition in self.options.where:
                    batch = _filtered(batch, condition, self.path)
                tally.filtered += before - len(batch)
                yield from self._strings(batch.column(self.options.text_column), tally)

    def _strings(self, column: Any, tally: Tally) -> Iterator[str]:
        try:
            texts = column.to_pylist()
        except UnicodeDecodeError:
            texts = [_decoded(value) for value in column]
        for text in texts:
            if isinstance(text, UnicodeDecodeError):
                _not_utf8(self.path, self.name, text).count_or_raise(tally, skip_bad=self.skip_bad)
            elif text:
                yield text
            else:
                tally.empty += 1


def _decoded(value: Any) -> str | UnicodeDecodeError | None:
    try:
        text: str | None = value.as_py()
    except UnicodeDecodeError as error:
        return error
    return text


def _open(path: Path, name: str) -> Any:
    parquet = import_extra("pyarrow.parquet", "reading Parquet", extra="data")
    arrow = import_extra("pyarrow", "reading Parquet", extra="data")
    try:
        return parquet.ParquetFile(path, buffer_size=_STREAM_BYTES, pre_buffer=False)
    except OSError as error:
        if error.errno:
            raise unreadable(path, name, error) from None
        raise _damaged(path, name, error) from None
    except arrow.ArrowException as error:
        raise _damaged(path, name, error) from None


def _row_groups(path: Path, name: str, options: RecordOptions) -> list[int]:
    """How many bytes of text each row group of a file has."""
    with _open(path, name) as file:
        schema, metadata = file.schema_arrow, file.metadata
        for column in options.columns:
            if column not in schema.names:
                texts = [field.name for field in schema if str(field.type) in _TEXT_TYPES]
                error = missing_column(str(path), column, list(schema.names), texts, options)
                raise UnusableError(name, f"no column '{column}'", error)
        kind = str(schema.field(options.text_column).type)
        if kind not in _TEXT_TYPES:
            raise UnusableError(
                name,
                f"column '{options.text_column}' holds {kind}",
                DataError(
                    f"column '{options.text_column}' of {path} holds {kind}, not text",
                    fix="name the column of the text: --text-column NAME",
                ),
            )
        if not metadata.num_rows:
            raise UnusableError(name, "no records", DataError(f"{path} has no records"), harmless=True)
        leaf = next(
            index
            for index in range(metadata.num_columns)
            if metadata.row_group(0).column(index).path_in_schema == options.text_column
        )
        return [
            metadata.row_group(index).column(leaf).total_uncompressed_size
            for index in range(metadata.num_row_groups)
        ]


def _filtered(batch: Any, condition: Condition, path: Path) -> Any:
    arrow = import_extra("pyarrow", "reading Parquet", extra="data")
    compute = import_extra("pyarrow.compute", "reading Parquet", extra="data")
    functions = {
        ">=": compute.greater_equal,
        "<=": compute.less_equal,
        "==": compute.equal,
        "!=": compute.not_equal,
        ">": compute.greater,
        "<": compute.less,
    }
    column = batch.column(condition.column)
    try:
        return batch.filter(functions[condition.sign](column, condition.value))
    except (arrow.ArrowException, TypeError):
        raise not_comparable(str(path), condition, str(column.type)) from None


def _damaged(path: Path, where: str, error: Exception) -> UnusableError:
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return UnusableError(
        where,
        f"not whole: {reason}",
        DataError(
            f"{path} is truncated or damaged: {reason}",
            why="what is missing of it cannot be guessed",
            fix="get the file again (compare its size with the original's), or leave it out with --skip-bad",
        ),
    )


def _not_utf8(path: Path, name: str, error: UnicodeDecodeError) -> UnusableError:
    shown = error.object[error.start : error.start + 8].hex(" ")
    return UnusableError(
        f"{name}: a record",
        f"not UTF-8 at byte {error.start} ({shown})",
        DataError(
            f"{path} holds a text that is not UTF-8: invalid bytes {shown} at byte {error.start} of it",
            why="guessing an encoding would silently train on wrong characters",
            fix="leave such records out with --skip-bad",
        ),
    )

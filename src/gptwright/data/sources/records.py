"""What Parquet and JSONL corpora share: the column that holds the text, and conditions on the others.

A condition is written as `int_score>=4` or `language==en`. A record that lacks a value does not fulfil it.
"""

import difflib
import json
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gptwright.errors import DataError

DEFAULT_TEXT_COLUMN = "text"

_CONDITION = re.compile(r"\s*([^\s<>=!]+)\s*(>=|<=|==|!=|>|<|=)\s*(.+?)\s*")
_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
}


@dataclass(frozen=True, slots=True)
class Condition:
    """One `--where`.

    Attributes:
        column: what is compared.
        sign: `>=`, `<=`, `==`, `!=`, `>` or `<`.
        value: with what: a number or a text.
    """

    column: str
    sign: str
    value: float | int | str | bool

    def holds(self, value: Any) -> bool:
        """Whether a record with this value is kept.

        Raises:
            TypeError: the two cannot be compared.
        """
        return value is not None and bool(_OPERATORS[self.sign](value, self.value))


@dataclass(frozen=True, slots=True)
class RecordOptions:
    """How records are read.

    Attributes:
        text_column: where the text is.
        where: what a record must fulfil; all of it.
    """

    text_column: str = DEFAULT_TEXT_COLUMN
    where: tuple[Condition, ...] = ()

    @property
    def columns(self) -> list[str]:
        """All that is read of a record."""
        return list(dict.fromkeys([self.text_column, *(condition.column for condition in self.where)]))


def parse_condition(text: str) -> Condition:
    """A condition as a person types it.

    Raises:
        DataError: it is none.
    """
    match = _CONDITION.fullmatch(text)
    if match is None:
        raise DataError(
            f"--where {text!r} is not a condition",
            why="it must be a column, one of >= <= == != > <, and a value",
            fix="write it as --where 'int_score>=4' or --where 'language==en'",
        )
    column, sign, written = match.groups()
    try:
        value = json.loads(written)
    except ValueError:
        value = written
    if not isinstance(value, (int, float, str, bool)):
        value = written
    return Condition(column, "==" if sign == "=" else sign, value)


def missing_column(
    where: str, column: str, there: list[str], texts: list[str], options: RecordOptions
) -> DataError:
    """The error for a file without a column that is asked for.

    Args:
        where: the file, or its line.
        column: what it does not have.
        there: the columns that it has.
        texts: those of them that hold text.
        options: what was asked.
    """
    if column == options.text_column:
        near = texts if len(texts) == 1 else difflib.get_close_matches(column, texts, n=1)
        fix = f"name the column of the text: --text-column {near[0] if near else 'NAME'}"
    else:
        fix = "--where with one of the columns that are there"
    shown = ", ".join(there[:12]) + (f" and {len(there) - 12} more" if len(there) > 12 else "")
    return DataError(f"{where} has no column '{column}'; it has {shown or 'none'}", fix=fix)


def not_comparable(where: str, condition: Condition, seen: str) -> DataError:
    """The error for a condition that compares a text with a number."""
    return DataError(
        f"--where {condition.column}{condition.sign}{condition.value} cannot be asked of {where}:"
        f" '{condition.column}' there is {seen}",
        fix="compare it with a value of its own kind",
    )

"""Reads nanoGPT's meta.pkl, and the plain part of its checkpoints, without unpickling.

Unpickling runs whatever program the file holds. Here `pickletools` only lists the opcodes, and a stack of
our own understands those that build plain values: dict, list, tuple, str, bytes, int, float, bool, None.
Anything that would look up a name or call something is refused, with its offset, before it means anything.
References stay references, so a small file cannot grow into a large value.
"""

import pickletools
import warnings
from pathlib import Path
from typing import Any

from gptwright.errors import DataError, GptwrightError

# A character vocabulary of all of Unicode is below 30 MB.
_LARGEST_FILE = 32 * 1024 * 1024

_LITERALS = frozenset(
    (
        *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
        *("STRING", "BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8"),
        *("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
    )
)
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_IGNORED = frozenset({"PROTO", "FRAME"})
_PUTS = frozenset({"PUT", "BINPUT", "LONG_BINPUT"})
_GETS = frozenset({"GET", "BINGET", "LONG_BINGET"})
_TUPLES = {"EMPTY_TUPLE": 0, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


def read_plain_pickle(path: Path) -> Any:
    """The plain value that a pickle file holds.

    Raises:
        DataError: the file is unreadable, damaged or too large, or would run code. Nothing is executed.
    """
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST_FILE + 1)
    except OSError as error:
        raise DataError(
            f"{path} cannot be read: {error.strerror}",
            fix="check the file's permissions, or remove it",
        ) from None
    if len(content) > _LARGEST_FILE:
        raise DataError(
            f"{path} is larger than 32 MiB",
            why="a vocabulary is smaller; the file is not read further",
            fix="remove it, or write one that holds the vocabulary alone",
        )
    return PickleReader(str(path)).read(content)


class PickleReader:
    """Builds the value that a pickle describes, out of plain values alone.

    A subclass may understand more opcodes, in `further`; whatever nobody understands is refused.

    Args:
        place: the file, for messages.
    """

    error: type[GptwrightError] = DataError
    refused_fix = "remove the file, or write it again as a plain dict of vocab_size, itos and stoi"
    damaged_fix = "run the dataset's own prepare.py again, or remove the file"

    def __init__(self, place: str) -> None:
        self.place = place
        self.stack: list[Any] = []
        self.marks: list[int] = []  # where groups of values start on the stack
        self.memo: dict[int, Any] = {}

    def read(self, content: bytes) -> Any:
        """The value.

        Raises:
            GptwrightError: of the class's `error`, for anything that is damaged or more than data.
        """
        try:
            with warnings.catch_warnings():
                # Damaged text can hold an escape that Python will one day refuse.
                warnings.simplefilter("error", DeprecationWarning)
                return self._read(content)
        except (ValueError, IndexError, KeyError, TypeError, AttributeError, DeprecationWarning) as error:
            raise self._damaged(str(error)) from None

    def _read(self, content: bytes) -> Any:
        for opcode, argument, position in pickletools.genops(content):
            if opcode.name == "STOP":
                return self._result()
            name = opcode.name
            if not (self._value(name, argument) or self._container(name) or self.further(name, argument)):
                raise self._refusal(opcode.name, argument, position)
        raise self._damaged("it does not end")

    def further(self, _name: str, _argument: Any) -> bool:
        """Whether an opcode beyond the plain ones was understood; here none is."""
        return False

    def _value(self, name: str, argument: Any) -> bool:
        if name in _LITERALS:
            self.stack.append(argument)
        elif name in _CONSTANTS:
            self.stack.append(_CONSTANTS[name])
        elif name in _PUTS:
            self.memo[argument] = self.stack[-1]
        elif name == "MEMOIZE":
            self.memo[len(self.memo)] = self.stack[-1]
        elif name in _GETS:
            self.stack.append(self.memo[argument])
        else:
            return name in _IGNORED
        return True

    def _container(self, name: str) -> bool:
        if name == "MARK":
            self.marks.append(len(self.stack))
        elif name == "EMPTY_DICT":
            self.stack.append({})
        elif name == "EMPTY_LIST":
            self.stack.append([])
        elif name == "DICT":
            self.stack.append(_pairs(self._group()))
        elif name == "LIST":
            self.stack.append(self._group())
        elif name == "TUPLE":
            self.stack.append(tuple(self._group()))
        elif name in _TUPLES:
            self.stack.append(tuple(self._last(_TUPLES[name])))
        elif name in ("SETITEM", "SETITEMS"):
            items = _pairs(self._last(2) if name == "SETITEM" else self._group())
            self._top(dict).update(items)
        elif name in ("APPEND", "APPENDS"):
            values = self._last(1) if name == "APPEND" else self._group()
            self._top(list).extend(values)
        else:
            return False
        return True

    def _group(self) -> list[Any]:
        start = self.marks.pop()
        values = self.stack[start:]
        del self.stack[start:]
        return values

    def _last(self, number: int) -> list[Any]:
        if number > len(self.stack):
            raise IndexError("a value is missing")
        values = self.stack[len(self.stack) - number :]
        del self.stack[len(self.stack) - number :]
        return values

    def _top(self, kind: type[Any]) -> Any:
        if not isinstance(self.stack[-1], kind):
            raise TypeError(f"a {kind.__name__} was expected")
        return self.stack[-1]

    def _result(self) -> Any:
        if len(self.stack) != 1 or self.marks:
            raise ValueError("it does not hold exactly one value")
        return self.stack[0]

    def _refusal(self, name: str, argument: Any, position: int | None) -> GptwrightError:
        what = f" ({str(argument)[:80]})" if argument is not None else ""
        return self.error(
            f"{self.place} holds more than plain values: pickle opcode {name}{what} at byte {position}",
            why="such an opcode can run a program when the file is unpickled; nothing of it was executed",
            fix=self.refused_fix,
        )

    def _damaged(self, reason: str) -> GptwrightError:
        return self.error(
            f"{self.place} is not a whole pickle file: {reason}",
            why="nothing of it was executed",
            fix=self.damaged_fix,
        )


def _pairs(values: list[Any]) -> dict[Any, Any]:
    return dict(zip(values[::2], values[1::2], strict=True))

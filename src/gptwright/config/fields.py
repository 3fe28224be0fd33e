"""What a setting may be: the type, range, default and help line of a field, and the check of a value.

A config is a frozen dataclass whose fields are made by `setting`. Values arrive as a person or a file wrote
them, so a check also brings them to the field's type: `1e5` is a whole number, `1` a learning rate, `true` a
flag.

By hand, although datasets and checkpoints are checked by pydantic: every verb's help and every plan need
these fields, and importing pydantic and building one model of it takes longer than all the rest of a plan.
"""

import dataclasses
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType, UnionType
from typing import Any, Literal, TypeGuard, Union, get_args, get_origin

# What an index or a size of a tensor can be: below 2^63.
LARGEST_WHOLE = 2**63 - 1
# How people and other programs write flags, beside Python's True and False.
FLAGS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A setting of a config.

    Attributes:
        name: the setting's.
        kind: its annotation: `int`, `float`, `bool`, `str`, a `Literal` of words, `None`, or several of them
        default: its value where nobody gives one.
        description: the help line.
        least: the smallest number that it may be.
        most: the largest number.
        above: numbers must be larger than this.
        below: numbers must be smaller than this.
    """

    name: str
    kind: Any
    default: Any
    description: str
    least: float | None = None
    most: float | None = None
    above: float | None = None
    below: float | None = None

    @property
    def kinds(self) -> tuple[Any, ...]:
        """The annotation's alternatives."""
        return get_args(self.kind) if get_origin(self.kind) in {Union, UnionType} else (self.kind,)

    @property
    def words(self) -> tuple[str, ...]:
        """All that it may be, as a person writes it; empty for numbers and texts."""
        words: list[str] = []
        for kind in self.kinds:
            if kind is bool:
                words += ["True", "False"]
            elif get_origin(kind) is Literal:
                words += get_args(kind)
            elif kind is not type(None):
                return ()
        return tuple(words)

    def accept(self, value: object) -> Any:
        """A value in the field's own type.

        Raises:
            ValueError: it is of another type or out of range; the message says what it should be.
        """
        for kind in self.kinds:
            for found in _readings(value, kind):
                if isinstance(found, bool | str | None) or self._within(found):
                    return found
        wanted = ", or ".join(_words(kind, self._range) for kind in self.kinds)
        # Where the bounds refuse it, they say enough.
        if int in self.kinds and _is_beyond_64_bits(value) and self._within(value):
            wanted += "; it is larger than any number of 64 bits"
        raise ValueError(f"it should be {wanted}")

    def _within(self, number: float) -> bool:
        return (
            (self.least is None or number >= self.least)
            and (self.most is None or number <= self.most)
            and (self.above is None or number > self.above)
            and (self.below is None or number < self.below)
        )

    @property
    def _range(self) -> str:
        """The bounds in words; empty where there are none."""
        bounds = {"at least": self.least, "above": self.above, "at most": self.most, "below": self.below}
        words = [f"{word} {bound:g}" for word, bound in bounds.items() if bound is not None]
        return f", {' and '.join(words)}" if words else ""


def setting(default: object, description: str, **bounds: float) -> Any:
    """A field of a config's dataclass: default, help line, and the bounds that `Field` has."""
    return dataclasses.field(default=default, metadata={"description": description, **bounds})


def fields_of(config: type[Any]) -> Mapping[str, Field]:
    """The fields of a config's dataclass by name, in its order."""
    return MappingProxyType(
        {
            field.name: Field(name=field.name, kind=field.type, default=field.default, **field.metadata)
            for field in dataclasses.fields(config)
        }
    )


def _readings(value: object, kind: Any) -> Iterator[float | str | None]:
    """The value as this kind, or nothing."""
    if get_origin(kind) is Literal:
        if isinstance(value, str) and value in get_args(kind):
            yield value
    elif kind is type(None):
        if value is None:
            yield None
    elif kind is str:
        if isinstance(value, str) and value:
            yield value
    elif kind is bool:
        if isinstance(value, str):
            value = FLAGS.get(value.lower())
        if isinstance(value, bool | int) and value in {0, 1}:
            yield bool(value)
    elif _is_number(value) and (kind is float or (value == int(value) and not _is_beyond_64_bits(value))):
        yield kind(value)


def _is_number(value: object) -> TypeGuard[int | float]:
    """Whether it is a number that a float can hold."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def _is_beyond_64_bits(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and abs(value) > LARGEST_WHOLE


def _words(kind: Any, bounds: str) -> str:
    if get_origin(kind) is Literal:
        return " or ".join(get_args(kind))
    if kind is int:
        return f"a whole number{bounds}"
    if kind is float:
        return f"a number{bounds}"
    return {bool: "True or False", str: "text", type(None): "None"}[kind]

"""The shapes of data lines: a template of a line's text with `{fields}` becomes a pattern and its reading.

`iter {step}: loss {loss}, time {ms}ms` is a regular expression except for its fields, each of which stands
for one number with its own pattern, column and scale (`fields`). A number counts only between the texts that
the trainer prints around it, so that one which was cut is not read.
"""

import re
from collections.abc import Callable
from functools import cached_property

import numpy as np

from gptwright.record.readers.fields import FIELDS, GROUPED, PLACEHOLDER
from gptwright.record.readers.runs import Run, is_plain

Check = Callable[[re.Match[str]], bool]

# A loss at the end of a line is whole if it has the decimals that the trainer prints, or is no number.
WHOLE = {decimals: rf"(?:(?<=\.\d{{{decimals}}})|(?<=nan)|(?<=inf))(?![\w.])" for decimals in (2, 4, 6)}
# What may stand around a template's text without being part of it.
FROM_LINE_START = r"(?:^|(?<=\s)|(?<=[A-Za-z\]]:))"
NO_COMMA = r"(?!,)"
DECORATIONS = (FROM_LINE_START, NO_COMMA, *WHOLE.values())
# Groups and classes, innermost first, with what repeats them; then text that is not repeated itself.
GROUP = re.compile(r"(?:(?<!\\)\((?:[^()\\]|\\.)*\)|(?<!\\)\[[^\]]*\])(?:[*+?]|\{[\d,]+\})?\+?")
MARK = re.compile(r"((?:(?<![\\?])[A-Za-z_:,/=%'\" -](?![*+?{]))+)")


class Columns:
    """Rows of one layout.

    Args:
        kind: `train` or `eval`.
        names: the fields of a row, keys of `FIELDS`.
    """

    def __init__(self, kind: str, *names: str) -> None:
        self.kind = kind
        self.fields = tuple(FIELDS[name] for name in names if FIELDS[name].column)


class Shape(Columns):
    """A kind of data line.

    Args:
        kind: `train` or `eval`.
        template: its text, a regular expression with `{fields}`.
        weight: how far one such line speaks for its trainer; less where several trainers print it.
        check: what must also hold of a match.
    """

    def __init__(self, kind: str, template: str, *, weight: float = 1.0, check: Check | None = None) -> None:
        super().__init__(kind, *PLACEHOLDER.findall(template))
        self.weight = weight
        self._template = template
        self._check = check
        self._simple = not any(field.pattern == GROUPED for field in self.fields) and "?" not in template

    # A log is read by one or two readers; the patterns of the others are never compiled.

    @cached_property
    def run(self) -> Run | None:
        """What reads many such lines at once; None where the shape is no plain text with numbers."""
        plain = self._template
        for decoration in DECORATIONS:
            plain = plain.removeprefix(decoration).removesuffix(decoration)
        return Run(plain) if self._check is None and is_plain(plain) else None

    @cached_property
    def _mark(self) -> str:
        return mark_of(PLACEHOLDER.sub("{}", self._template))

    @cached_property
    def _search(self) -> Callable[[str, int], re.Match[str] | None]:
        return re.compile(PLACEHOLDER.sub(_captured, self._template), re.ASCII).search

    def search(self, text: str, begin: int = 0) -> re.Match[str] | None:
        """The first such line in the text, from `begin` on."""
        if self._mark not in text:
            return None
        match = self._search(text, begin)
        return None if match is None or (self._check is not None and not self._check(match)) else match

    def values(self, match: re.Match[str]) -> list[float]:
        """The printed numbers of a match, one a field; NaN for an optional field that is not there."""
        if self._simple:
            return [float(text) for text in match.groups()]
        return [np.nan if text is None else float(text.replace(",", "")) for text in match.groups()]


def mark_of(template: str) -> str:
    """The longest text that every line of a template holds, so that one quick test rules most lines out."""
    outside = template
    while GROUP.search(outside):
        outside = GROUP.sub("{}", outside)
    plain = [run[1] for run in MARK.finditer(outside)]
    return max(plain, key=len, default="")


def same_decimals(match: re.Match[str]) -> bool:
    """Whether the last number of a match has not been cut: text follows it, or all have as many decimals."""
    if match.string[match.end() : match.end() + 1] in (",", ";", "|", ")"):
        return True
    decimals = {len(text.partition(".")[2]) for text in match.groups()[1:] if text and text[-1].isdigit()}
    return len(decimals) <= 1


def _captured(placeholder: re.Match[str]) -> str:
    field = FIELDS[placeholder[1]]
    return f"({field.pattern})" if field.column else f"(?:{field.pattern})"

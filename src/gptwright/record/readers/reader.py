"""What a reader of one trainer's log is: data, the shapes of the trainer's lines and what its numbers mean.

The way of a log through it is the same for all (`passage`). Here too is what programs put in front of lines,
whoever trains.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gptwright.record.arrays import Floats
from gptwright.record.evidence import LogFormat
from gptwright.record.readers.build import Builder
from gptwright.record.readers.headers import Header
from gptwright.record.readers.shapes import Columns, Shape
from gptwright.record.readers.tables import Rows

Taker = Callable[[str, int], bool]
Finish = Callable[[Builder, Rows, Rows], LogFormat | None]

# systemd's journal; the usual format of logging; loguru.
LOGGERS = (
    r"[A-Z][a-z]{2} [ \d]\d(?= \d\d:\d\d:\d\d )|[\w.-]{1,60} [\w.-]{1,40}\[\d{1,9}\]:(?= )"
    r"|[\w.]{1,60}(?= - (?:DEBUG|INFO|WARNING|ERROR) - )"
    r"|\| (?:DEBUG|INFO|WARNING|ERROR) {0,5}\| [\w.:<>]{1,80}(?= - )"
)
# What programs put in front of a line: times, levels, ranks, names of modules and hosts, quotes.
PREFIX = re.compile(
    rf"(?:{LOGGERS}|[\s>|*():-]|\[[^\[\]]{{1,60}}\]|\d{{4}}-\d\d-\d\d(?:T(?=\d))?"
    r"|\d\d:\d\d:\d\d(?:[.,]\d{1,9})?Z?"
    r"|(?:DEBUG|INFO|WARNING|ERROR|root|stdout|stderr)\b|rank ?\d{1,4}\b|[\w.-]{1,60}(?=: ))*+"
)
# The same where a header line follows, which may begin with a bar or spaces of its own.
STAMP = re.compile(
    r"(?:(?:\[[^\[\]]{1,60}\]:?|\d{4}-\d\d-\d\d(?:T(?=\d))?|\d\d:\d\d:\d\d(?:[.,]\d{1,9})?Z?|\d{1,4}:"
    r"|(?:DEBUG|INFO|WARNING|ERROR)(?::[\w.]{1,60}:?)?|root|-(?= )"
    rf"|{LOGGERS}) ?|> ?)*+"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Many:
    """Reads runs of plain data lines at once.

    Attributes:
        runs: where such runs begin and end in a text, in order, each with its numbers, one row a line.
        columns: what the numbers are.
    """

    runs: Callable[[str], Iterator[tuple[int, int, Floats]]]
    columns: Columns


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Reader:
    """Knows one trainer's log.

    Attributes:
        format: what its numbers mean.
        shapes: its data lines.
        headers: its header lines.
        begins: how a data line of it begins: for counting those that could not be read.
        whole: a whole data line, for a reader without shapes.
        special: makes, for one log, what reads lines without fixed texts: text and number → taken or not.
        whole_lines: `special` takes lines with what stands in front of them, where a step may stand too.
        finish: what only the whole log tells; may return the format of a variant.
        many: reads many plain data lines at once, for a reader without shapes.
        signs: further lines that speak for this trainer, each with its weight.
    """

    format: LogFormat
    begins: re.Pattern[str]
    shapes: tuple[Shape, ...] = ()
    headers: tuple[Header, ...] = ()
    whole: re.Pattern[str] | None = None
    special: Callable[[Builder], Taker] | None = None
    whole_lines: bool = False
    many: Many | None = None
    finish: Finish | None = None
    signs: tuple[tuple[re.Pattern[str], float], ...] = ()

    def weight_of(self, text: str) -> float:
        """How far a line speaks for this trainer by its data; 0 if it holds no whole line of data."""
        for shape in self.shapes:
            if shape.search(text):
                return shape.weight
        return 1.0 if self.whole is not None and self.whole.search(text) else 0.0


def unstamped(text: str) -> str:
    """A line without the times and ranks in front of it and the spaces behind."""
    stamp = STAMP.match(text)
    return text[stamp.end() if stamp else 0 :].rstrip()

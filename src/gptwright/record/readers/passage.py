"""The way of a log through a reader, the same for all trainers.

Runs of plain data lines are read at once; every other line is tried against the data shapes, wherever in the
line they stand, then against the header and the events. A line that begins like data and does not fit is
kept until the next one: a terminal may have broken it. If the two do not fit together either, it counts as
skipped. Nothing is guessed: a number is read between the texts around it or not at all.
"""

import re
from dataclasses import dataclass

import numpy as np

from gptwright.record.readers.build import Builder
from gptwright.record.readers.events import Events
from gptwright.record.readers.lines import LONGEST_LINE
from gptwright.record.readers.reader import PREFIX, Reader, unstamped
from gptwright.record.readers.runs import Form
from gptwright.record.readers.shapes import Shape
from gptwright.record.readers.wandb import Summary

Seams = tuple[int, ...]

NO_DIGITS = dict.fromkeys(map(ord, "0123456789"), "0")
DIGITS, DECIMALS = re.compile(r"\d+"), re.compile(r"\.(\d+)$")
MOST_PREFIXES = 1_000
# Shorter than any line of data.
SHORTEST = 8
# At 20 columns the longest data line of these trainers is in a dozen pieces.
MOST_PIECES = 12
MOST_HEADS = 4
# A middle piece of a broken line fills its width, up to the word that no longer fitted.
FILLED = 0.6
FIRST_WORD = re.compile(r"\s*(\S*)")
# "saved at step 500" is a sentence, and no beginning of the line of a step.
SENTENCE = re.compile(r"\b(?:at|from|after|until|to|since|before|by) (?:iter(?:ation)?|step) \d+\W*$", re.I)
# Where the file ends in this, a number may be cut, or its unit.
CUT_NUMBER = re.compile(r"\d[\d.,_]*(?:e[-+]?\d*|\s?[A-Za-z%/]{1,4})?\s*$", re.ASCII)
# A whole JSON file on one line is read object by object, and so is a list of them.
A_LIST = "[{"
CLOSED = re.compile(r"(?<=\})|(?<=\]),? ?(?=\[)")


@dataclass(slots=True)
class Pending:
    """Pieces of a line that a terminal may have broken.

    Attributes:
        pieces: each with its line number.
        heads: what they may be together, as a break may have eaten a space, and where the breaks are.
    """

    pieces: list[tuple[str, int]]
    heads: list[tuple[str, Seams]]


@dataclass(frozen=True, slots=True)
class Hot:
    """Shape and form of the training line before, which are most likely those of the next ones."""

    shape: Shape
    form: Form


class Passage:
    """One log on its way through a reader.

    Args:
        reader: the trainer's.
        width: the width at which a terminal wrapped this log; 0 where nothing says that one did.
        file: its name; empty where it has none.

    Attributes:
        reader: the trainer's.
        build: what was read.
        summary: what W&B printed at the end.
    """

    def __init__(self, reader: Reader, width: int, *, file: str = "") -> None:
        self.reader = reader
        self.build = Builder()
        self.build.file = file
        self._width = width
        self._special = reader.special(self.build) if reader.special else None
        self._events = Events(self.build)
        self.summary = Summary()
        self._pending: Pending | None = None
        self._hot: Hot | None = None
        self._batch: list[tuple[int, int, str]] = []
        self._torn = False
        self._last_taken = ""
        # Forms of what stood in front of lines and belongs there; times make a new text of each.
        self._prefixes: set[str] = set()

    def block(self, text: str, number: int, *, torn: bool) -> int:
        """Reads lines; returns the number of the line in which they end.

        Args:
            text: the lines.
            number: the number of the first.
            torn: the last one has no end: a number at its end may be cut.
        """
        done, many = 0, None if self._width else self.reader.many
        if many is not None:
            for begin, end, rows in many.runs(text):
                number = self._lines(text[done:begin], number, torn=False)
                self.build.block(many.columns, np.arange(number, number + len(rows)), rows)
                number, done = number + len(rows), end
        return self._lines(text[done:], number, torn=torn)

    def _lines(self, text: str, number: int, *, torn: bool) -> int:
        """Reads lines, those of one form at once; returns the number of the line in which they end."""
        begin = 0
        while begin < len(text):
            if self._hot is not None and (end := self._hot.form.end(text, begin)) > begin:
                self._give_up()
                count = text.count("\n", begin, end)
                self._batch.append((number, count, text[begin:end]))
                number, begin = number + count, end
                continue
            end = text.find("\n", begin)
            behind = number + 1
            if end < 0:
                end, behind = len(text), number
                self._torn = torn
            if end > begin:
                self.line(text[begin:end], number)
            number, begin = behind, end + 1
        self._convert()
        return number

    def line(self, text: str, number: int) -> None:
        """Reads one line."""
        if "\r" not in text and len(text) <= LONGEST_LINE and not text.startswith(A_LIST):
            self._part(text, number)
            return
        self.build.hazards["carriage returns"] += text.count("\r")
        torn, shown_last = self._torn, text.rindex("\r") if "\r" in text else 0
        at = 0
        for shown in text.split("\r"):
            # Of bars that share a line only the last one can be cut.
            self._torn = torn and at > shown_last
            at += len(shown) + 1
            short = len(shown) <= LONGEST_LINE and not shown.startswith(A_LIST)
            for part in [shown] if short else CLOSED.split(shown):
                if part and not part.isspace():
                    self._part(part[:LONGEST_LINE], number)

    def end(self) -> None:
        """Settles what is still open."""
        self._give_up()

    def _learn(self, shape: Shape, text: str, begin: int) -> None:
        """Takes a line as the form of a run that may follow."""
        if shape.run is not None and shape.kind == "train":
            self._convert()
            form = shape.run.form_of(text, begin)
            self._hot = None if form is None else Hot(shape, form)

    def _convert(self) -> None:
        """Turns the runs of plain lines that were found into rows."""
        batch, self._batch = self._batch, []
        if not batch or self._hot is None:
            return
        counts = np.array([count for _, count, _ in batch])
        firsts = np.array([number for number, _, _ in batch])
        numbers = self._hot.form.numbers("".join(lines for _, _, lines in batch), int(counts.sum()))
        if numbers is not None:
            offsets = np.repeat(firsts - np.concatenate([[0], np.cumsum(counts)[:-1]]), counts)
            self.build.block(self._hot.shape, offsets + np.arange(len(offsets)), numbers)
            return
        for number, _, lines in batch:
            for offset, line in enumerate(lines.split("\n")[:-1]):
                self.line(line, number + offset)

    def _part(self, text: str, number: int) -> None:
        if self._pending is not None and self._joined(self._pending, text, number):
            return
        self._give_up()
        if self._width and len(text) == self._width:
            self._pending = Pending([(text, number)], [(text, ())])
        elif not self._understood(text, number) and self._begins_data(text):
            if self._width:
                self._pending = Pending([(text, number)], [(text, ())])
            else:
                self.build.lines_skipped += 1

    def _begins_data(self, text: str) -> bool:
        return self.reader.begins.search(text) is not None and SENTENCE.search(text) is None

    def _understood(self, text: str, number: int, seams: Seams = ()) -> bool:
        """Takes what a line says, if anything; with `seams`, only if it stands on both sides of one."""
        if not seams and self.summary.take(text, number):
            return True
        if self._data(text, number, seams):
            return True
        told = unstamped(text)
        in_front = len(text.rstrip()) - len(told)
        readable = not self._torn or self.reader.whole is not None or CUT_NUMBER.search(text) is None
        readable = readable or self._ends_like_those_before(text)
        if (
            self._special is not None
            and readable
            and self._special(text if self.reader.whole_lines else told, number)
        ):
            self._last_taken = text
            return True
        if self._header(told, number, tuple(seam - in_front for seam in seams)):
            return True
        return not seams and self._events.read(text, number, full_width=len(text) == self._width)

    def _ends_like_those_before(self, text: str) -> bool:
        """Whether a last line without an end has all that the line before it has, and as many decimals."""
        before, now = self._last_taken.rstrip(), text.rstrip()
        if not self.reader.whole_lines or DIGITS.sub("0", before) != DIGITS.sub("0", now):
            return False
        ends = [DECIMALS.search(line) for line in (before, now)]
        if not now[-1:].isdigit():
            return True
        return None not in ends and len({len(end[1]) for end in ends if end is not None}) == 1

    def _data(self, text: str, number: int, seams: Seams) -> bool:
        begin = 0
        while len(text) - begin >= SHORTEST:
            found = self._first(text, begin)
            if found is None:
                break
            shape, match = found
            if seams and not _crosses(match, seams):
                break
            proper = match.start() == begin or self._belongs(text[begin : match.start()])
            self.build.row(shape, number, shape.values(match))
            # A run takes only what looks whole, and a broken line may look so.
            if proper and not begin and not self._width:
                self._learn(shape, text, match.start())
            begin = match.end()
            if seams:
                break
        if begin and begin < len(text) and self.reader.begins.search(text, begin):
            self.build.lines_skipped += 1
        return begin > 0

    def _first(self, text: str, begin: int) -> tuple[Shape, re.Match[str]] | None:
        """The first data line in a text, and its shape."""
        first = None
        for shape in self.reader.shapes:
            match = shape.search(text, begin)
            if match is not None and (first is None or match.start() < first[1].start()):
                first = shape, match
                if match.start() == begin:
                    break
        return first

    def _belongs(self, prefix: str) -> bool:
        """Whether what stands in front of a data line belongs there; counts it if not."""
        form = prefix.translate(NO_DIGITS)
        if form in self._prefixes:
            return True
        if PREFIX.fullmatch(prefix):
            if len(self._prefixes) < MOST_PREFIXES:
                self._prefixes.add(form)
            return True
        self.build.hazards["text glued to a line"] += 1
        if self.reader.begins.search(prefix):
            self.build.lines_skipped += 1
        return False

    def _header(self, text: str, number: int, seams: Seams) -> bool:
        found = [(header, match) for header in self.reader.headers if (match := header.search(text))]
        if seams and not any(_crosses(match, seams) for _, match in found):
            return False
        for header, match in found:
            if self._torn and match.end() == len(text) and text[-1].isdigit():
                continue
            for said in header.said(match):
                self.build.said(said, number)
        return bool(found)

    def _joined(self, pending: Pending, text: str, number: int) -> bool:
        """Tries the pieces of a broken line with the next; True if that was taken or may be one of more."""
        if self.reader.begins.match(unstamped(text).lstrip()):
            return False
        heads = self._put_together(pending, text)
        may_go_on = bool(heads) and len(pending.pieces) < MOST_PIECES
        if not (may_go_on and len(text) == self._width) and self._whole(heads, pending):
            self._pending = None
            return True
        if may_go_on and FILLED * self._width <= len(text) <= self._width:
            self._pending = Pending([*pending.pieces, (text, number)], heads[:MOST_HEADS])
            return True
        return False

    def _put_together(self, pending: Pending, text: str) -> list[tuple[str, Seams]]:
        """The ways in which the next line may go on the pieces: at the full width, or for want of room."""
        last, first_word = pending.pieces[-1][0], FIRST_WORD.match(text)
        heads = []
        for head, seams in pending.heads:
            if len(last) == self._width:
                heads.append((head + text, (*seams, len(head))))
            if first_word is not None and len(last) + 1 + len(first_word[1]) > self._width:
                heads.append((f"{head} {text.lstrip()}", (*seams, len(head))))
        return heads

    def _whole(self, heads: list[tuple[str, Seams]], pending: Pending) -> bool:
        """Whether one of the ways to put pieces together says something on both sides of a break."""
        for whole, seams in heads:
            if self._understood(whole, pending.pieces[0][1], seams):
                self.build.hazards["joined wrapped lines"] += 1
                return True
        return False

    def _give_up(self) -> None:
        """Takes pieces as they are: all together, or else one by one."""
        pending, self._pending = self._pending, None
        if pending is None:
            return
        if len(pending.pieces) > 1 and self._whole(pending.heads, pending):
            return
        for text, number in pending.pieces:
            if not self._understood(text, number) and self._begins_data(text):
                self.build.lines_skipped += 1


def _crosses(match: re.Match[str], seams: Seams) -> bool:
    return any(match.start() < seam < match.end() for seam in seams)

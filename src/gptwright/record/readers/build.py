"""Where a reader puts what it finds, line by line: rows, facts, settings, events, and what went wrong.

Rows are kept as printed, one flat array of doubles a layout, so that a million lines cost some 40 MB until
they become tables (see `tables`).
"""

from array import array
from collections import Counter
from collections.abc import Iterable

import numpy as np

from gptwright.facts import Fact, Origin, Value
from gptwright.record.arrays import Floats, Integers
from gptwright.record.evidence import LONGEST_COMMENT, Comment, Event, EventKind
from gptwright.record.readers.headers import LATE, Said, fact
from gptwright.record.readers.shapes import Columns

# A model of another size is another run's; roundings and ways of counting differ by less.
OTHER_SIZE = 1.2
LONGEST_EVENT = 500
# The size of a failed allocation stands at the front; what is free and reserved, up to 800 characters on.
LONGEST_MEMORY_EVENT = 2_000
# A warning may be printed at every step; the first thousand of a kind tell all.
MOST_EVENTS = 1_000
# More than any config has.
MOST_COMMENTS = 1_000
# Who counts them by parts has more, and says one on every line.
MOST_EPOCHS = 10_000
# What a step's tokens are, or are the product of.
OF_A_BATCH = frozenset(
    (
        "tokens_per_step",
        "micro_batch",
        "batch_size",
        "gradient_accumulation_steps",
        "block_size",
        "world_size",
    )
)


def further_of(kind: EventKind) -> str:
    """The hazard that counts the events of a kind beyond those that are kept."""
    return f"further lines of kind {kind}"


class Builder:
    """Collects one log.

    Attributes:
        file: the name of the log's file; empty where it has none.
        tables: rows of each layout: line, then the printed values.
        header: facts by name.
        settings: echoed settings by name.
        comments: comments beside settings, in order.
        batches: facts about a step's tokens, in order, once for each process that prints them.
        events: events in order.
        hazards: what was repaired or met, with its count.
        lines_skipped: data lines that could not be read whole.
        process_starts: lines of headers, each of which a new process may have printed.
        other_models: lines that say another size of the model than the header of the rows before.
        epochs_said: the line that said each epoch first.
        said_again: settings around a pasted log that were said before with another value.
    """

    def __init__(self) -> None:
        self.file = ""
        self.tables: dict[Columns, array[float]] = {}
        self.header: dict[str, Fact] = {}
        self.settings: dict[str, Fact] = {}
        self.comments: list[Comment] = []
        self.batches: list[Fact] = []
        self.events: list[Event] = []
        self.hazards: Counter[str] = Counter()
        self.lines_skipped = 0
        self.process_starts: list[int] = []
        self.other_models: list[int] = []
        self.said_again: list[Fact] = []
        self.epochs_said: dict[float, int] = {}
        self._events_of: Counter[EventKind] = Counter()
        self._last_event_line = 0
        self._last_row_line = 0
        self._devices: set[Fact] = set()

    def row(self, columns: Columns, line: int, values: Iterable[float]) -> None:
        """Adds one row."""
        rows = self.tables.setdefault(columns, array("d"))
        rows.append(line)
        rows.extend(values)
        self._last_row_line = line

    def amend(self, columns: Columns, value: float) -> None:
        """Sets the first value of the last row of a layout, which a later line has told."""
        rows = self.tables[columns]
        rows[len(rows) - len(columns.fields)] = value

    def block(self, columns: Columns, lines: Integers, numbers: Floats) -> None:
        """Adds many rows at once."""
        rows = self.tables.setdefault(columns, array("d"))
        rows.frombytes(np.column_stack([lines.astype(np.float64), numbers]).tobytes())
        self._last_row_line = int(lines[-1])

    def has_rows(self) -> bool:
        """Whether any data was read."""
        return any(self.tables.values())

    def forget_since_data(self) -> None:
        """Drops events since the last row, and before the first all hazards: they stood in something else."""
        self.events = [event for event in self.events if event.line <= self._last_row_line]
        if not self.has_rows():
            self.hazards.clear()
            self.lines_skipped = 0

    def said(self, said: Said, line: int) -> None:
        """Keeps what a header line says; the last wins, because the last run is the one asked about."""
        target = self.settings if said.name.startswith("settings.") else self.header
        made = fact(said, line)
        if made.name == "device" and self._is_another_device(made):
            return
        if self._is_of_another_model(made, target.get(made.name)):
            self._forget_the_run_before(line)
        target[made.name] = made
        self._note_batch(made)
        if said.rounding is not None:
            self.header[f"{said.name}_rounding"] = fact(Said(f"{said.name}_rounding", said.rounding), line)
        if said.name not in LATE:
            self.process_starts.append(line)

    def _is_another_device(self, made: Fact) -> bool:
        """Whether a table names devices of several kinds: which one was used it does not say."""
        self._devices = {f for f in self._devices if f.line > self._last_row_line} | {made}
        if len({f.value for f in self._devices}) < 2:
            return False
        self.header.pop("device", None)
        return True

    def _note_batch(self, made: Fact) -> None:
        if made.name not in OF_A_BATCH:
            return
        before = next((fact for fact in reversed(self.batches) if fact.name == made.name), None)
        # Several processes print the same header; one that is resumed prints it behind rows.
        if before is None or before.value != made.value or before.line <= self._last_row_line:
            self.batches.append(made)

    def note_epoch(self, epoch: float, line: int) -> None:
        """Keeps where an epoch was said, which lines behind it need not say again."""
        if len(self.epochs_said) < MOST_EPOCHS:
            self.epochs_said.setdefault(epoch, line)

    def take_between(self, after: int, before: int) -> None:
        """Takes settings that were said again between two lines for those of what follows them."""
        for made in self.said_again:
            if after < made.line < before:
                self.header[made.name] = made

    def take_first_batch(self) -> None:
        """Takes what the first header says of a batch for the run's, where the newest line stands first."""
        for made in reversed(self.batches):
            for facts in (self.header, self.settings):
                if made.name in facts:
                    facts[made.name] = made

    def _is_of_another_model(self, made: Fact, before: Fact | None) -> bool:
        """Whether a size is far from the one that stands in front of the rows."""
        if before is None or made.name not in ("parameters", "parameters_total"):
            return False
        ratio = made.number / before.number
        return before.line <= self._last_row_line and not 1 / OTHER_SIZE < ratio < OTHER_SIZE

    def _forget_the_run_before(self, line: int) -> None:
        """Drops the facts and settings that stand in front of the rows: they are another run's."""
        self.other_models.append(line)
        self.comments = [comment for comment in self.comments if comment.line > self._last_row_line]
        self.batches = [fact for fact in self.batches if fact.line > self._last_row_line]
        for facts in (self.header, self.settings):
            for name, each in list(facts.items()):
                # What was derived is derived from what stands there.
                if each.origin is Origin.DERIVED or each.line <= self._last_row_line:
                    del facts[name]

    def fact(self, name: str, value: Value, line: int) -> None:
        """Keeps a fact of the header."""
        self.said(Said(name, value), line)

    def setting(self, name: str, value: Value, line: int) -> None:
        """Keeps a setting that the log echoes."""
        self.said(Said(f"settings.{name}", value), line)

    def comment(self, text: str, line: int, field: str | None) -> None:
        """Keeps a comment beside a setting, or between settings."""
        if len(self.comments) < MOST_COMMENTS:
            self.comments.append(Comment(text.strip()[:LONGEST_COMMENT], line, field, in_log=True))

    def event(self, kind: EventKind, line: int, text: str) -> None:
        """Keeps an event; what several processes print one after the other is one."""
        longest = LONGEST_MEMORY_EVENT if kind is EventKind.OUT_OF_MEMORY else LONGEST_EVENT
        text = text.strip()[:longest]
        again = self.events and self.events[-1].text == text and line <= self._last_event_line + 1
        self._last_event_line = line
        if again:
            self.hazards["repeated lines"] += 1
            return
        self._events_of[kind] += 1
        if self._events_of[kind] > MOST_EVENTS:
            self.hazards[further_of(kind)] += 1
            return
        self.events.append(Event(kind, line, None, text))

    def extend_event(self, text: str) -> None:
        """Adds the next line of a wrapped message to the last event."""
        last = self.events[-1]
        self.events[-1] = Event(last.kind, last.line, last.step, (last.text + text)[:LONGEST_MEMORY_EVENT])

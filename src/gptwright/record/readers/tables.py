"""From printed rows to the tables of the evidence: scaled, in order, repeats gone, processes parted.

All of it is whole-array arithmetic: a million rows take about half a second.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from gptwright.facts import derived
from gptwright.record.arrays import Booleans, Floats, Integers
from gptwright.record.evidence import CARRIED, EvalLines, Event, EventKind, TrainLines
from gptwright.record.readers.build import MOST_EVENTS, Builder, further_of
from gptwright.record.readers.headers import Said, fact
from gptwright.record.readers.shapes import Columns

TRAIN_COLUMNS = ("loss", "seconds", "tokens_per_second", "mfu", "learning_rate", "grad_norm", "epoch")
EVAL_COLUMNS = ("train_loss", "val_loss", "val_bpb", "train_standard_error", "val_standard_error", "epoch")
# Processes print the same line at the same time; a resumed run may come to print one of its lines again.
REPEATED_WITHIN = 2
# Counts of tokens say how many a step has if there are so many of them, and each step adds as many.
FEWEST_COUNTS, UNEVEN = 3, 0.02
# So many steps back, and none forward, are no runs that start again.
FEWEST_BACK = 4
CARRIED_EVAL = Columns("eval", "step", "val_loss")
LOSSES = ("loss", "train_loss", "val_loss", "val_bpb")


class Rows:
    """Rows of one kind, by column. A column that no line has is NaN throughout.

    Args:
        kind: `train` or `eval`.
        build: what was read.

    Attributes:
        line: line of each row.
        is_bad: whether a loss was printed as NaN or infinity.
        unknown_mfu: rows whose printed MFU says that the trainer does not know it.
    """

    def __init__(self, kind: str, build: Builder) -> None:
        self._kind = kind
        self.read(build)

    def read(self, build: Builder) -> None:
        """Takes the rows that were collected, again if need be."""
        pieces = [
            _piece(columns, rows)
            for columns, rows in build.tables.items()
            if columns.kind == self._kind and rows
        ]
        self.unknown_mfu = sum(unknown for _, _, unknown in pieces)
        names = {name for columns, _, _ in pieces for name in columns}
        self._columns = {
            name: np.concatenate([columns.get(name, _absent(len(bad))) for columns, bad, _ in pieces])
            for name in names
        }
        self.is_bad: Booleans = (
            np.concatenate([bad for _, bad, _ in pieces]) if pieces else np.zeros(0, np.bool_)
        )
        line = self._columns.pop("line", np.zeros(0))
        self.line: Integers = line.astype(np.int64)
        if np.any(np.diff(self.line) < 0):
            self.take(np.argsort(self.line, kind="stable"))

    def __len__(self) -> int:
        return len(self.line)

    def __getitem__(self, name: str) -> Floats:
        column = self._columns.get(name)
        return _absent(len(self)) if column is None else column

    def __setitem__(self, name: str, column: Floats) -> None:
        self._columns[name] = column

    def __contains__(self, name: str) -> bool:
        return name in self._columns

    def take(self, rows: Integers | Booleans) -> None:
        """Keeps only these rows, in this order."""
        self.line, self.is_bad = self.line[rows], self.is_bad[rows]
        self._columns = {name: column[rows] for name, column in self._columns.items()}

    def turn(self) -> None:
        """Puts the last line first; lines become negative, so that they still rise."""
        self.take(np.arange(len(self))[::-1])
        self.line = -self.line

    def drop_stepless(self) -> int:
        """Drops rows of which nothing says the step."""
        stepless = ~np.isfinite(self["step"])
        if stepless.any():
            self.take(~stepless)
        return int(stepless.sum())

    def drop_repeats(self) -> int:
        """Drops rows that say again what the row before them says: several processes print the same line."""
        if len(self) < 2:
            return 0
        repeated = np.diff(self.line) <= REPEATED_WITHIN
        for column in self._columns.values():
            before, after = column[:-1], column[1:]
            repeated &= (before == after) | (np.isnan(before) & np.isnan(after))
        if repeated.any():
            self.take(np.concatenate([[True], ~repeated]))
        return int(repeated.sum())


def train_lines(rows: Rows, segment: Integers) -> TrainLines:
    """The training table."""
    return TrainLines(
        step=rows["step"].astype(np.int64),
        line=np.abs(rows.line),
        segment=segment,
        loss_is_bad=rows.is_bad,
        **{name: rows[name] for name in TRAIN_COLUMNS},
    )


def eval_lines(rows: Rows, segment: Integers) -> EvalLines:
    """The table of evaluations."""
    return EvalLines(
        step=rows["step"].astype(np.int64),
        line=np.abs(rows.line),
        segment=segment,
        loss_is_bad=rows.is_bad,
        **{name: rows[name] for name in EVAL_COLUMNS},
    )


def newest_first(train: Rows, evals: Rows) -> bool:
    """Whether the steps of a log only go down: it was pasted with its newest line first."""
    _, _, steps = _in_order(train, evals)
    return only_down(steps)


def only_down(steps: Floats) -> bool:
    """Whether steps go down and never up, more often than by chance."""
    passed = np.diff(steps[np.isfinite(steps)])
    return bool((passed < 0).sum() >= FEWEST_BACK and not (passed > 0).any())


class Segments:
    """Parts a log into the processes that wrote it.

    A new one begins where a header or a resume stands between two rows, or where the step goes back. It is
    another run if it starts again from the first step, which after a failure may be the only one that the
    process before it came to, or if its model is of another size.

    Args:
        train: training rows.
        evals: evaluations.
        starts: lines of headers.
        resumes: lines that say that a run goes on.
        failures: lines of errors, which end a process.
        other_models: lines that say another size of the model.

    Attributes:
        train: the segment of each training row.
        evals: the segment of each evaluation.
        runs: how many runs the log holds.
        last_run: the segment with which the last run starts.
        last_run_between: the last line of the run before the last one, and its own first one; None where
            there is one run.
        unannounced: line, step before and step after of each resume that no line announces.
    """

    def __init__(
        self,
        train: Rows,
        evals: Rows,
        *,
        starts: Sequence[int],
        resumes: Iterable[int],
        failures: Iterable[int],
        other_models: Sequence[int],
    ) -> None:
        order, lines, steps = _in_order(train, evals)
        resumed = _between(lines, resumes)
        back = steps[1:] < steps[:-1]
        failed = _between(lines, failures) & (steps[1:] <= steps[:-1])
        begins = back | resumed | failed | _between(lines, starts)
        number = np.concatenate([np.zeros(min(1, len(lines)), np.int64), np.cumsum(begins)])
        segment = np.empty(len(lines), np.int64)
        segment[order] = number
        self.train, self.evals = segment[: len(train)], segment[len(train) :]
        again = (back | failed) & ~resumed & (steps[1:] <= max(1.0, steps[0] if len(steps) else 0.0))
        again |= _between(lines, other_models)
        self.runs = 1 + int(again.sum())
        self.last_run = int(number[1:][again][-1]) if again.any() else 0
        begins_at = np.flatnonzero(again)
        self.last_run_between = (
            (int(lines[begins_at[-1]]), int(lines[begins_at[-1] + 1])) if len(begins_at) else None
        )
        unannounced = np.flatnonzero(begins & ~resumed & ~again)
        self.unannounced = [(int(lines[at + 1]), int(steps[at]), int(steps[at + 1])) for at in unannounced]


def dated(events: Sequence[Event], train: Rows, evals: Rows) -> tuple[Event, ...]:
    """The events in the order of the rows, each with the last step that was printed before it."""
    _, lines, steps = _in_order(train, evals)
    at = np.searchsorted(lines, [event.line for event in events]) - 1
    return tuple(
        Event(event.kind, abs(event.line), int(steps[row]) if row >= 0 else None, event.text)
        for event, row in sorted(zip(events, at, strict=True), key=lambda pair: pair[0].line)
    )


def unannounced_resumes(build: Builder, segments: Segments) -> list[Event]:
    """An event for each place where a run goes on without a line that says so.

    Lines that are out of order make one of every other line: as of other events, the first thousand tell all.
    """
    places = segments.unannounced[:MOST_EVENTS]
    if len(places) < len(segments.unannounced):
        build.hazards[further_of(EventKind.RESUME)] += len(segments.unannounced) - len(places)
    return [
        Event(EventKind.RESUME, line, before, f"goes on at step {after} after step {before}")
        for line, before, after in places
    ]


def note_peak_memory(build: Builder, train: Rows) -> None:
    """Takes the most memory that a training line prints, with its line, as a fact of the header."""
    used = train["memory_bytes"]
    if np.isfinite(used).any():
        at = int(np.nanargmax(used))
        said = Said("peak_memory_bytes", round(float(used[at])))
        build.header["peak_memory_bytes"] = fact(said, int(train.line[at]))


def note_tokens(build: Builder, train: Rows) -> None:
    """Takes the tokens of a step from a count of those since the start, if it grows evenly with the steps.

    Where texts are of uneven length it does not, and the last count is what was seen.
    """
    known = np.flatnonzero(np.isfinite(train["tokens_seen"]) & np.isfinite(train["step"]))
    if len(known) < FEWEST_COUNTS or "tokens_per_step" in build.header:
        return
    counts, steps, lines = train["tokens_seen"][known], train["step"][known], train.line[known]
    more, passed = np.diff(counts), np.diff(steps)
    if (passed < 0).all():
        more, passed = -more, -passed
    if (passed <= 0).any() or (more <= 0).any():
        return
    each = float((counts[-1] - counts[0]) / (steps[-1] - steps[0]))
    if np.abs(more / passed / each - 1).max() <= UNEVEN:
        formula = f"what the counts of lines {lines[0]} and {lines[-1]} differ by, over their steps"
        build.header["tokens_per_step"] = derived("tokens_per_step", round(each), formula, unit="tokens")
        return
    last = int(np.argmax(counts))
    build.header["tokens_seen"] = fact(Said("tokens_seen", int(counts[last])), int(lines[last]))


def take_carried(build: Builder, train: Rows, evals: Rows) -> None:
    """Takes evaluations from training lines that repeat the last one, where the log has no others."""
    carried = train["carried_val_loss"]
    if len(evals) or not np.isfinite(carried).any():
        return
    rows = np.flatnonzero(np.isfinite(carried) & (carried != np.append(np.nan, carried[:-1])))
    for row in rows:
        build.row(CARRIED_EVAL, int(train.line[row]), (float(train["step"][row]), float(carried[row])))
    evals.read(build)
    build.hazards[CARRIED] = len(rows)


def note_unknown_mfu(build: Builder, train: Rows) -> None:
    """Counts the MFUs by which a trainer says that it does not know the device."""
    if train.unknown_mfu:
        build.hazards["MFU unknown to the trainer"] += train.unknown_mfu


def _in_order(train: Rows, evals: Rows) -> tuple[Integers, Integers, Floats]:
    """The order of the rows of both tables, with their lines and steps in it.

    Of rows on one line, as of a bar that is drawn over itself, steps tell what came first.
    """
    lines = np.concatenate([train.line, evals.line])
    steps = np.concatenate([train["step"], evals["step"]])
    order = np.lexsort((steps, lines))
    return order, lines[order], steps[order]


def _piece(columns: Columns, rows: Sequence[float]) -> tuple[dict[str, Floats], Booleans, int]:
    """The columns of one layout, its rows with a bad loss, and how many MFUs the trainer did not know."""
    table = np.frombuffer(rows, np.float64).reshape(-1, 1 + len(columns.fields))  # type: ignore[call-overload]
    named = {"line": table[:, 0].copy()}
    bad, unknown = np.zeros(len(table), np.bool_), 0
    for at, field in enumerate(columns.fields, 1):
        printed = table[:, at]
        values = printed * field.scale
        if field.known is not None:
            known = field.known(printed)
            unknown += int((~known & ~np.isnan(printed)).sum())
            values = np.where(known, values, np.nan)
        if field.column in LOSSES:
            bad |= ~np.isfinite(printed)
        named[field.column] = values
    return named, bad, unknown


def _between(lines: Integers, marks: Iterable[int]) -> Booleans:
    """Whether a mark lies between each row and the next."""
    passed = np.searchsorted(np.sort(np.fromiter(marks, np.int64)), lines)
    return np.diff(passed) > 0


def _absent(length: int) -> Floats:
    return np.full(length, np.nan)

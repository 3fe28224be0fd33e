"""The last of several runs in one log: nobody asks about the ones before it, and no number is of two runs."""

from dataclasses import fields, replace
from typing import TypeVar

from gptwright.record.evidence import FATAL, EvalLines, LogEvidence, TrainLines

Table = TypeVar("Table", TrainLines, EvalLines)


def last_run(log: LogEvidence | None) -> LogEvidence | None:
    """A log without the rows and events of the runs before its last one; its segments count from 0."""
    if log is None or not log.last_run_segment:
        return log
    first = log.last_run_segment
    tables = log.train, log.evals
    before = max(log.moment(int(line)) for table in tables for line in table.line[table.segment < first])
    train, evals = _from(log.train, first), _from(log.evals, first)
    begin = min(log.moment(int(line)) for table in (train, evals) for line in table.line[:1])
    return replace(
        log,
        train=train,
        evals=evals,
        events=tuple(
            event
            for event in log.events
            if log.moment(event.line) > (begin if event.kind in FATAL else before)
        ),
        last_run_segment=0,
        batches=tuple(fact for fact in log.batches if log.moment(fact.line) > before),
    )


def _from(table: Table, first: int) -> Table:
    """The rows from a segment on."""
    kept = table.segment >= first
    columns = {column.name: getattr(table, column.name)[kept] for column in fields(table)}
    return type(table)(**columns | {"segment": columns["segment"] - first})

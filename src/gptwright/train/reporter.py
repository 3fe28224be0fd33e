"""Whatever a run says while it trains goes through here: the record, the log, the screen, the hook.

The watchdog speaks from a thread of its own, so one lock keeps lines whole; the watchdog does not wait for
it for long, because a dead disk may be what stalls the run.
"""

import threading
from collections.abc import Mapping
from typing import Any, Protocol

from gptwright.record.log_text import append_log
from gptwright.record.metrics import MetricsFile, Record
from gptwright.record.run import RunFolder
from gptwright.train.hook import Hook

# Seconds that the watchdog waits for the lock.
PATIENCE = 5.0
# What the hook calls the actions of guards; the others go by their own name.
EVENTS = {"skipped": "non-finite", "rollback": "non-finite", "scaler-collapse": "non-finite"}


class Listener(Protocol):
    """Whoever shows a run while it trains."""

    def recorded(self, record: Record) -> None:
        """A line of metrics was written."""

    def stepped(self, step: int) -> None:
        """Update `step` was made."""


class Reporter:
    """Writes records where they belong.

    Args:
        run: the run folder.
        metrics: its metrics file; None in a process that does not write, where nothing is told to anybody.
        listener: shows each record.
        hook: is told what guards did.
    """

    def __init__(self, run: RunFolder, metrics: MetricsFile | None, listener: Listener, hook: Hook) -> None:
        self._run = run
        self._metrics = metrics
        self._listener = listener
        self._hook = hook
        self._lock = threading.Lock()

    def record(self, kind: str, fields: Mapping[str, Any], *, patience: float = -1) -> None:
        """Writes one line.

        Args:
            kind: of record.
            fields: what it says.
            patience: seconds to wait for another thread that writes, then nothing is written; -1: any time.

        Raises:
            DiskFullError: there is no room.
        """
        if self._metrics is None or not self._lock.acquire(timeout=patience):
            return
        try:
            record = self._metrics.append(kind, fields)
            append_log(self._run.log_path, record)
        finally:
            self._lock.release()
        self._listener.recorded(record)

    def acted(
        self, what: str, step: int, text: str, *, tell: bool = True, patience: float = -1, **numbers: Any
    ) -> None:
        """Says what a guard did.

        Args:
            what: the action, as `metrics.jsonl` names it.
            step: of the run.
            text: a sentence for people.
            tell: whether the hook is told too.
            patience: as in `record`.
            numbers: what else is known.
        """
        if tell:
            self._hook.tell(EVENTS.get(what, what), {"step": step, "text": text, **numbers})
        self.record("guard", {"step": step, "what": what, "text": text, **numbers}, patience=patience)

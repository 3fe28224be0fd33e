"""Several listeners of one run: a screen, loggers, and whatever a program of its own wants to hear."""

from gptwright.record.metrics import Record
from gptwright.train.loop import Listener


class Listeners:
    """Tells each of several listeners, in order.

    Args:
        listeners: an object with `recorded(record)` and `stepped(step)` each; what one raises ends the run.
    """

    def __init__(self, *listeners: Listener) -> None:
        self.listeners = listeners

    def recorded(self, record: Record) -> None:
        """A line of metrics was written."""
        for listener in self.listeners:
            listener.recorded(record)

    def stepped(self, step: int) -> None:
        """Update `step` was made."""
        for listener in self.listeners:
            listener.stepped(step)

"""Stopping on request: Ctrl-C and SIGTERM let the step finish, and the run save itself.

A second Ctrl-C stops at once, as a person who presses it twice wants; the last checkpoint stays.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class StopRequest:
    """Whether a signal has asked the run to stop."""

    def __init__(self) -> None:
        self.signal_name: str | None = None

    def __bool__(self) -> bool:
        return self.signal_name is not None

    def receive(self, number: int, _frame: FrameType | None) -> None:
        """The signal handler."""
        if self:
            raise KeyboardInterrupt
        self.signal_name = signal.Signals(number).name


@contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """Listens for SIGINT and SIGTERM inside the block, and restores what was there before."""
    request = StopRequest()
    before = {number: signal.signal(number, request.receive) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

"""Stopping on request: Ctrl-C and SIGTERM let the step finish, and the run save itself.

A second Ctrl-C stops at once, as a person who presses it twice wants; the last checkpoint stays. torchrun
sends every signal that it gets on to its processes, which a terminal's Ctrl-C has reached already: such an
echo is no second wish.
"""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

# torchrun passes a signal on within milliseconds; nobody presses twice and means it in less than this.
ECHO_SECONDS = 2.0


class StopRequest:
    """Whether a signal has asked the run to stop."""

    def __init__(self) -> None:
        self.signal_name: str | None = None
        self.received_at = 0.0

    def __bool__(self) -> bool:
        return self.signal_name is not None

    def receive(self, number: int, _frame: FrameType | None) -> None:
        """The signal handler."""
        if self and not self._is_echo():
            raise KeyboardInterrupt
        self.signal_name = signal.Signals(number).name
        self.received_at = time.monotonic()

    def _is_echo(self) -> bool:
        return "TORCHELASTIC_RUN_ID" in os.environ and time.monotonic() - self.received_at < ECHO_SECONDS


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

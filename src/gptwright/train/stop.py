"""Stopping on request: Ctrl-C, SIGTERM and a closed terminal let the step finish, and the run save itself.

A second Ctrl-C stops at once, as a person who presses it twice wants; the last checkpoint stays. torchrun
sends every signal that it gets on to its processes, which a terminal's Ctrl-C has reached already, and when a
terminal is closed or a connection ends, the kernel, the shell and systemd each say so: such an echo is no
second wish. Under nohup, which has a closed terminal ignored, the run goes on.
"""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

# torchrun passes a signal on within milliseconds; nobody presses twice and means it in less than this.
ECHO_SECONDS = 2.0
# A closed terminal's; Windows has none.
HANG_UP = getattr(signal, "SIGHUP", None)


class StopRequest:
    """Whether a signal has asked the run to stop."""

    def __init__(self) -> None:
        self.signal_name: str | None = None
        self.received_at = 0.0

    def __bool__(self) -> bool:
        return self.signal_name is not None

    def receive(self, number: int, _frame: FrameType | None) -> None:
        """The signal handler."""
        if self and not self._is_echo(number):
            raise KeyboardInterrupt
        self.signal_name = signal.Signals(number).name
        self.received_at = time.monotonic()

    def _is_echo(self, number: int) -> bool:
        if number == HANG_UP:
            return True
        passed_on = "TORCHELASTIC_RUN_ID" in os.environ or self.signal_name == "SIGHUP"
        return passed_on and time.monotonic() - self.received_at < ECHO_SECONDS


@contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """Listens for SIGINT, SIGTERM and SIGHUP inside the block, and restores what was there before."""
    request = StopRequest()
    numbers = [signal.SIGINT, signal.SIGTERM]
    if HANG_UP is not None and signal.getsignal(HANG_UP) != signal.SIG_IGN:
        numbers.append(HANG_UP)
    before = {number: signal.signal(number, request.receive) for number in numbers}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

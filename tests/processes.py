"""Waiting for what other processes do, and for their end; what tests of several rooms share."""

import time
from collections.abc import Callable, Sequence

import psutil

PATIENCE_SECONDS = 120.0


def wait_until(condition: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> None:
    """Waits for something that another process does.

    Raises:
        TimeoutError: it did not.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"nothing came of it in {seconds:g} s")
        time.sleep(0.02)


def have_ended(processes: Sequence[psutil.Process]) -> bool:
    """Whether none of them runs any more: a signal takes its time, and a zombie waits for its parent only."""
    return not any(map(_runs, processes))


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False

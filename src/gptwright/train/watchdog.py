"""A watchdog for a step that never ends: a hung driver, a dead network drive, a deadlock.

A thread of its own looks at the time since the training last gave a sign. It cannot end what hangs inside a
driver, so it says where: the stacks of all threads go into `stalls.txt` in the run folder, one line into the
record, and the hook is told. When the run goes on after all, it is watched again.
"""

import faulthandler
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

# The first step compiles kernels and fills caches: minutes where later ones take a second.
FIRST_STEP_PATIENCE = 3.0


class Watchdog:
    """Watches the time between two signs of life; a context manager around the training.

    Args:
        seconds: the longest time without a sign; 0 watches nothing.
        stacks: file to which stacks are appended.
        stalled: told how many seconds it has been, in the watchdog's thread.
    """

    def __init__(self, seconds: float, *, stacks: Path, stalled: Callable[[float], None]) -> None:
        self._seconds = seconds
        self._patience = FIRST_STEP_PATIENCE
        self._stacks = stacks
        self._stalled = stalled
        self._seen = time.monotonic()
        self._told = False
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def __enter__(self) -> "Watchdog":
        self._seen = time.monotonic()
        if self._seconds:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5.0)

    def alive(self) -> None:
        """A sign of life: a step, an evaluation or a checkpoint is done."""
        self._seen, self._told, self._patience = time.monotonic(), False, 1.0

    def _watch(self) -> None:
        while not self._end.wait(min(1.0, self._seconds / 4)):
            silent = time.monotonic() - self._seen
            if not self._told and silent > self._seconds * self._patience:
                self._told = True
                self._dump(silent)
                self._stalled(silent)

    def _dump(self, silent: float) -> None:
        try:
            with self._stacks.open("a", encoding="utf-8") as file:
                file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')}: no sign of life for {silent:.0f} s\n")
                file.flush()
                faulthandler.dump_traceback(file, all_threads=True)
                file.write("\n")
        except OSError:
            # A full or dead disk may be what stalls the run; then the hook is all that can tell.
            return

"""The diagnosis of a run that still trains, made beside it: another process, at the lowest priority.

A diagnosis takes a second or more of one core and some 100 MB, which the training loop must not pay. It is
`gptwright diagnose --json` itself, so what a screen shows is what the command says. After each one it waits
a hundred times as long as that took: at most a hundredth of one core.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

# A diagnosis of a run that is younger says mostly what is missing.
FIRST_AFTER = 20.0
WAIT_PER_SECOND = 100.0
# One that takes longer is given up; a million lines take some ten seconds.
LONGEST = 120.0


class DiagnosisAside:
    """Diagnoses of one run, again and again while it trains.

    Args:
        run: its folder.

    Attributes:
        document: the last diagnosis, as `--json` prints it; None before the first.
    """

    def __init__(self, run: Path) -> None:
        self.run = run
        self.document: dict[str, Any] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - `close` closes it
        self._began = 0.0
        self._due = time.monotonic() + FIRST_AFTER

    def look(self) -> None:
        """Takes a diagnosis that is ready and starts the next one that is due; returns at once."""
        now = time.monotonic()
        if self._process is None:
            if now >= self._due:
                self._start(now)
        elif self._process.poll() is not None:
            self._take(self._process.returncode)
            self._process = None
            self._due = now + WAIT_PER_SECOND * (now - self._began)
        elif now - self._began > LONGEST:
            self._process.kill()

    def close(self) -> None:
        """Ends what still runs."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._output.close()

    def _start(self, now: float) -> None:
        self._began = now
        self._output.seek(0)
        self._output.truncate()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "gptwright", "diagnose", str(self.run), "--json"],
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=subprocess.DEVNULL,
                env=os.environ | {"OMP_NUM_THREADS": "1"},
            )
        except OSError:
            # A screen that cannot diagnose still shows the run.
            self._due = now + WAIT_PER_SECOND
            return
        if hasattr(os, "setpriority"):
            with contextlib.suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, self._process.pid, 19)

    def _take(self, status: int) -> None:
        self._output.seek(0)
        if status == 0:
            with contextlib.suppress(ValueError):
                self.document = json.loads(self._output.read())

"""A command of the user's own, told when a run finishes, fails, stalls or meets a NaN or infinity.

The facts go to its standard input as one JSON object. It is started without a shell, in a session of its own
(Ctrl-C in the terminal does not reach it), and is killed with its children when its time is up. Whatever it
does, the run goes on: a missing program, an exit status, a hang are written to `hook.log` and nowhere else.

The command comes from the command line or the environment alone and is no setting of a config on purpose: a
config or a run folder may come from somebody else, and nothing in them is ever executed.
"""

import contextlib
import json
import os
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gptwright.errors import ConfigError
from gptwright.record.metrics import with_names_for_infinities

SCHEMA = "gptwright.hook/1"
# Long enough for a mail or a message over a slow network.
SECONDS = 30.0
# How much of its output is kept.
LONGEST_OUTPUT = 4096


class Hook:
    """Tells a command what happened to a run.

    Args:
        command: as typed, split as a shell would split it but never given to one; None tells nobody.
        run: the run folder.
        seconds: how long it may take.

    Raises:
        ConfigError: the command cannot be split.
    """

    def __init__(self, command: str | None, *, run: Path, seconds: float = SECONDS) -> None:
        self._command = split_command(command) if command else []
        self._run = run
        self._seconds = seconds
        self._threads: list[threading.Thread] = []

    def tell(self, event: str, facts: Mapping[str, Any]) -> None:
        """Starts the command in a thread and returns at once.

        Args:
            event: `finished`, `stopped`, `failed`, `stalled`, `non-finite`, `rollback`, `stuck` or
                `out-of-memory`.
            facts: what is known.
        """
        if not self._command:
            return
        document = {"schema": SCHEMA, "event": event, "run": str(self._run.absolute()), **facts}
        thread = threading.Thread(target=self._call, args=(event, document), name="hook", daemon=True)
        self._threads.append(thread)
        thread.start()

    def wait(self) -> None:
        """Waits for the commands under way, each no longer than its time."""
        for thread in self._threads:
            thread.join(self._seconds + 5.0)
        self._threads = []

    def _call(self, event: str, document: Mapping[str, Any]) -> None:
        try:
            outcome = _run_limited(
                self._command, json.dumps(with_names_for_infinities(document), allow_nan=False), self._seconds
            )
        except Exception as error:
            outcome = f"could not be run: {error}"
        with contextlib.suppress(OSError), (self._run / "hook.log").open("a", encoding="utf-8") as file:
            file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {event}: {outcome}\n")


def split_command(command: str) -> list[str]:
    """The words of a command.

    Raises:
        ConfigError: a quote is not closed.
    """
    try:
        return shlex.split(command, posix=os.name == "posix")
    except ValueError as error:
        raise ConfigError(
            f"--hook {command!r} is not a command: {error}",
            why="it is split into a program and its arguments; no shell sees it",
            fix="--hook 'python3 notify.py'",
        ) from None


def _run_limited(command: list[str], text: str, seconds: float) -> str:
    """Runs a command with a text on its input; what came of it, as one line."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(text, timeout=seconds)
    except subprocess.TimeoutExpired:
        _kill(process)
        output, _ = process.communicate()
        return f"killed after {seconds:g} s; it said {output[-LONGEST_OUTPUT:]!r}"
    return f"exit status {process.returncode}; it said {output[-LONGEST_OUTPUT:]!r}"


def _kill(process: "subprocess.Popen[str]") -> None:
    with contextlib.suppress(OSError):
        if os.name == "posix":
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()

"""Reads damaged files of every format and keeps account of what went wrong.

Nothing but a `GptwrightError` may come out. While reading, an audit hook watches for what a reader must never
do: run a program, look up a pickled name, open a connection, write or remove a file.
"""

import os
import random
import sys
import time
import traceback
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from gptwright.errors import GptwrightError
from tests.fuzz.formats import FORMATS

FORBIDDEN = {
    "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty", "subprocess.Popen",
    "pickle.find_class", "socket.connect", "socket.bind", "os.remove", "os.rename", "os.rmdir", "os.mkdir",
    "shutil.rmtree", "exec", "ctypes.dlopen", "os.chmod", "os.symlink", "os.link",
}  # fmt: skip


@dataclass(slots=True)
class Result:
    """What a number of damaged files came to.

    Attributes:
        files: how many were read.
        refused: how many of them with a message.
        by_format: how many of each format.
        crashes: seed, format and error of each that was refused otherwise.
        executed: what was done that must not be.
        slowest_seconds: of processor time for one file.
    """

    files: int = 0
    refused: int = 0
    by_format: dict[str, int] = field(default_factory=dict)
    crashes: list[str] = field(default_factory=list)
    executed: list[str] = field(default_factory=list)
    slowest_seconds: float = 0.0


class _Watch:
    """An audit hook, which Python never removes; it looks only while it is told to."""

    def __init__(self) -> None:
        self.reading = False
        self.seen: list[str] = []
        sys.addaudithook(self)

    def __call__(self, event: str, arguments: tuple[object, ...]) -> None:
        if not self.reading:
            return
        if event in FORBIDDEN:
            # Modules of our own that are loaded late are code of ours.
            if event == "exec" and str(getattr(arguments[0], "co_filename", "")).endswith(".py"):
                return
            self.seen.append(f"{event} {str(arguments)[:80]}")
        elif event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR):
            self.seen.append(f"open to write {arguments[0]}")


_watches: list[_Watch] = []


def fuzz(seeds: Iterable[int], folder: Path) -> Result:
    """Reads one damaged file for each seed, the formats in turn."""
    if not _watches:
        _watches.append(_Watch())
    watch = _watches[0]
    formats = [kind(folder) for kind in FORMATS]
    result = Result()
    for seed in seeds:
        rng = random.Random(seed)
        kind = formats[seed % len(formats)]
        path = kind.damage(rng)
        result.files += 1
        result.by_format[kind.name] = result.by_format.get(kind.name, 0) + 1
        begin = time.process_time()
        watch.seen, watch.reading = [], True
        try:
            kind.read()
        except GptwrightError:
            result.refused += 1
        except KeyboardInterrupt:
            raise
        except BaseException:
            result.crashes.append(f"seed {seed}, {path.name}: {traceback.format_exc(limit=-3)}")
        finally:
            watch.reading = False
            result.slowest_seconds = max(result.slowest_seconds, time.process_time() - begin)
            result.executed += [f"seed {seed}, {path.name}: {what}" for what in watch.seen]
            kind.mend(path)
    return result

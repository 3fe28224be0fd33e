"""One process at a time writes a run folder: a lock that a crash cannot leave behind.

The system holds the lock (flock on POSIX, a locked byte on Windows) for as long as the process lives, so a
kill, a crash or a power cut frees it and nobody has to judge whether a recorded process is still alive. What
the file says (process, machine, since when) is for people alone; a file without a holder is simply taken
over. flock works between the machines of an NFS too; where a file system knows no locks at all, the run goes
on without one and says so.
"""

import contextlib
import errno
import json
import os
import platform
import sys
import time
import weakref
from pathlib import Path

from gptwright.errors import RunError

LOCK_NAME = "run.lock"
# Bytes that are read of what the file says.
LONGEST_LINE = 4096
# Where a lock is waited for: short beside the start of a process that needs it.
POLL_SECONDS = 0.1
# Windows locks bytes for reading too, so the locked one lies behind whatever the file says.
_LOCKED_BYTE = 2**20
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, getattr(errno, "ENOTSUP", errno.ENOSYS), errno.EINVAL)
_HELD = (errno.EWOULDBLOCK, errno.EACCES, getattr(errno, "EDEADLK", errno.EACCES))


class RunLock:
    """The lock on a run folder, taken when made and held until `release`, or until nobody refers to it.

    Args:
        folder: the run folder; it must exist.
        patience: seconds to wait for a holder that may be about to end.

    Attributes:
        warning: why there is no protection, where the file system has no locks.

    Raises:
        RunError: another process writes this run.
    """

    def __init__(self, folder: Path, *, patience: float = 0.0) -> None:
        self.path = folder / LOCK_NAME
        self.warning: str | None = None
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            _lock_within(descriptor, patience)
        except OSError as error:
            if error.errno in _HELD:
                holder = _holder(descriptor)
                os.close(descriptor)
                raise _in_use(folder, holder) from None
            if error.errno not in _NO_LOCKS:
                os.close(descriptor)
                raise
            self.warning = (
                f"the file system of {folder} has no locks ({error.strerror}), so nothing keeps a second"
                " process from writing this run"
            )
        self._let_go = weakref.finalize(self, os.close, descriptor)
        # A full disk must not keep a run from being resumed: what the file says is not needed.
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.lseek(descriptor, 0, os.SEEK_SET)
            os.write(descriptor, _own_line())

    def release(self) -> None:
        """Lets another process have the run; the file stays, as removing it would free a lock being taken."""
        self._let_go()


def process_of(folder: Path) -> int | None:
    """The process on this machine that took a run's lock last, as the file says; None where it does not."""
    with contextlib.suppress(OSError, ValueError, TypeError, AttributeError):
        said = json.loads((folder / LOCK_NAME).read_bytes()[:LONGEST_LINE])
        process = said.get("process")
        if said.get("machine") == platform.node() and isinstance(process, int) and process > 0:
            return process
    return None


def _lock_within(descriptor: int, patience: float) -> None:
    """Takes the lock as soon as its holder lets go, or raises OSError when the time is over."""
    deadline = time.monotonic() + patience
    while True:
        try:
            return _lock(descriptor)
        except OSError as error:
            if error.errno not in _HELD or time.monotonic() >= deadline:
                raise
        time.sleep(POLL_SECONDS)


def _lock(descriptor: int) -> None:
    """Takes the lock at once or raises OSError."""
    if sys.platform == "win32":
        import msvcrt

        os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        os.lseek(descriptor, 0, os.SEEK_SET)
    else:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _own_line() -> bytes:
    fields = {
        "process": os.getpid(),
        "machine": platform.node(),
        "since": time.strftime("%Y-%m-%d %H:%M:%S"),
    }
    return (json.dumps(fields) + "\n").encode()


def _holder(descriptor: int) -> str:
    """Who holds the lock, as far as the file tells."""
    try:
        fields = json.loads(os.read(descriptor, LONGEST_LINE))
        return f"process {fields['process']} on {fields['machine']}, since {fields['since']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"


def _in_use(folder: Path, holder: str) -> RunError:
    return RunError(
        f"{folder} is being written by {holder}",
        why="two processes in one run would overwrite each other's checkpoints and record",
        fix="wait for it or stop it (Ctrl-C saves), or train into another --out_dir",
    )

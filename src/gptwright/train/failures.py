"""One message for a failure of many processes, and it names the rank.

When one process fails, the others fail a moment later because they cannot reach it any more, and a person
sees as many tracebacks as there are processes, the first cause among them somewhere. Here whoever fails first
signs in the launcher's store, which outlives the processes, and speaks; the others end silently. A process
that dies without a word (killed by the kernel, a segmentation fault) is found by the others on its host,
because its process id is in the store too.
"""

import os
import signal
import socket
import threading
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psutil

from gptwright.errors import GptwrightError, PeerFailedError, PeerLostError

if TYPE_CHECKING:
    from gptwright.train.distributed import World

# A failing process signs within milliseconds; a killed one is a zombie as soon as its sockets are closed.
# The rest is for a busy machine.
PATIENCE_SECONDS = 5.0
POLL_SECONDS = 0.05

# The store is on this machine or one hop away; where it cannot be reached, each process speaks for itself.
STORE_SECONDS = 10.0

# gloo and NCCL raise RuntimeError with their own names in the text.
TRANSPORTS = ("gloo", "nccl")


class Register:
    """Who belongs to a run, and who has spoken about its failure.

    Args:
        world: the processes.
    """

    def __init__(self, world: "World") -> None:
        self._world = world
        self._store: Any = None
        restart = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        self._prefix = f"gptwright/{restart}/"

    def enter(self) -> None:
        """Signs in, once the processes are connected, and waits until all have."""
        self._store = self._connect()
        if self._store is not None:
            own = f"{os.getpid()} {socket.gethostname()}"
            self._store.set(f"{self._prefix}{self._world.rank}", own)
        import torch.distributed as dist

        dist.barrier()

    def _connect(self) -> Any:
        """A line to the store of torchrun's agent; None without one."""
        from torch.distributed import TCPStore  # type: ignore[attr-defined]

        if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != str(True):
            return None
        return TCPStore(
            os.environ["MASTER_ADDR"],
            int(os.environ["MASTER_PORT"]),
            is_master=False,
            timeout=timedelta(seconds=STORE_SECONDS),
        )

    def told_once(self, error: Exception) -> Exception:
        """What this process raises for an error that ends it: the error with its rank, or a silent one."""
        if isinstance(error, PeerFailedError):
            return error
        # torchrun ends the others as soon as one has died; who speaks about it needs a moment longer.
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if _is_broken_connection(error):
            return self._lost(error)
        if not self._first_to_speak():
            return PeerFailedError("another process failed")
        if isinstance(error, GptwrightError):
            return type(error)(f"{self._world.describe()}: {error.problem}", why=error.why, fix=error.fix)
        error.add_note(f"in {self._world.describe()}")
        return error

    def _lost(self, error: Exception) -> Exception:
        """Waits for whoever failed first to speak, or for a process that turns out to be dead."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        dead: list[int] = []
        while not dead and time.monotonic() < deadline:
            if self._has_spoken():
                return PeerFailedError("another process failed")
            dead = self._dead_on_this_host()
            time.sleep(POLL_SECONDS)
        if not self._first_to_speak():
            return PeerFailedError("another process failed")
        go_on = (
            "`torchrun --max-restarts=N` starts again by itself, and the same command with --init_from=auto"
            " goes on from the last checkpoint"
        )
        if dead:
            return PeerLostError(
                f"rank {dead[0]} of {self._world.size} on {socket.gethostname()} ended without a word",
                why="it was killed (kill -9, the kernel's out-of-memory killer: see `dmesg`) or it crashed",
                fix=go_on,
            )
        return PeerLostError(
            f"{self._world.describe()} cannot reach the other processes any more",
            why=str(error).splitlines()[0],
            fix=f"see to the other machines and the network; {go_on}",
        )

    def _dead_on_this_host(self) -> list[int]:
        if self._store is None:
            return []
        host = socket.gethostname()
        dead = []
        for rank in range(self._world.size):
            pid, place = self._store.get(f"{self._prefix}{rank}").decode().split(" ", 1)
            if place == host and not _is_alive(int(pid)):
                dead.append(rank)
        return dead

    def _has_spoken(self) -> bool:
        try:
            return self._store is not None and bool(self._store.check([f"{self._prefix}spoken"]))
        except RuntimeError:
            self._store = None
            return False

    def _first_to_speak(self) -> bool:
        """Takes the word; where the store is out of reach, nobody can be asked and one speaks."""
        try:
            if self._store is None:
                self._store = self._connect()
            if self._store is None:
                return True
            own = str(self._world.rank)
            return bool(self._store.compare_set(f"{self._prefix}spoken", "", own).decode() == own)
        except RuntimeError:
            return True


def _is_broken_connection(error: Exception) -> bool:
    import torch.distributed as dist

    if isinstance(error, dist.DistError):
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and any(name in text for name in TRANSPORTS)


def _is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False

"""One message for a failure of many processes, and it names the rank.

When one process fails, the others fail a moment later because they cannot reach it any more, and a person
sees as many tracebacks as there are processes, the first cause among them somewhere. Here whoever fails first
signs in the launcher's store, which outlives the processes, and speaks; the others end silently. A process
that dies without a word (killed by the kernel, a segmentation fault) is found by the others on its host,
which know its process id.
"""

import os
import signal
import socket
import threading
import time
from datetime import timedelta
from typing import Any

import psutil

from gptwright.errors import GptwrightError, PeerFailedError, PeerLostError
from gptwright.train.world import World

# A failing process signs within milliseconds; a killed one is a zombie as soon as its sockets are closed.
# The rest is for a busy machine.
PATIENCE_SECONDS = 5.0
POLL_SECONDS = 0.05

# The store is on this machine or one hop away; where it cannot be reached, each process speaks for itself.
STORE_SECONDS = 10.0

# gloo and NCCL raise RuntimeError with their own names in the text, or with one of gloo's sentences.
SIGNS = ("gloo", "nccl", "caused pair closure", "connection closed by peer", "connection reset by peer")


class Register:
    """Who belongs to a run, and who has spoken about its failure.

    Args:
        world: the processes.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._store: Any = None
        self._places: list[tuple[int, str]] = []
        restart = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        self._prefix = f"gptwright/{restart}/"

    def enter(self, name: str) -> None:
        """Learns where every process is, once they are connected.

        Args:
            name: of this start, which no start before had.
        """
        self._prefix = f"gptwright/{name}/"
        places = self._world.all_gather([os.getpid(), socket.gethostname()])
        self._places = [(pid, host) for pid, host in places]

    def told_once(self, error: Exception) -> Exception:
        """What this process raises for an error that ends it: the error with its rank, or a silent one."""
        if isinstance(error, PeerFailedError):
            return error
        outlive_the_launcher(self._world)
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
        host = socket.gethostname()
        places = enumerate(self._places)
        return [rank for rank, (pid, place) in places if place == host and not _is_alive(pid)]

    def _has_spoken(self) -> bool:
        try:
            return self._reached() and bool(self._store.check([f"{self._prefix}spoken"]))
        except RuntimeError:
            return False

    def _first_to_speak(self) -> bool:
        """Takes the word; where the store is out of reach, nobody can be asked and one speaks."""
        own = str(self._world.rank)
        try:
            if not self._reached():
                return True
            return bool(self._store.compare_set(f"{self._prefix}spoken", "", own).decode() == own)
        except RuntimeError:
            return True

    def _reached(self) -> bool:
        """Whether the store of torchrun's agent can be asked; there is none without torchrun."""
        if self._store is None and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == str(True):
            from torch.distributed import TCPStore  # type: ignore[attr-defined]

            self._store = TCPStore(
                os.environ["MASTER_ADDR"],
                int(os.environ["MASTER_PORT"]),
                is_master=False,
                timeout=timedelta(seconds=STORE_SECONDS),
            )
        return self._store is not None


def outlive_the_launcher(world: World) -> None:
    """Ignores SIGTERM from now on, in one of several processes.

    torchrun ends the others as soon as one has died; who speaks about it, or tells the hook, needs a moment
    longer.
    """
    if world.size > 1 and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _is_broken_connection(error: Exception) -> bool:
    import torch.distributed as dist

    if isinstance(error, dist.DistError):
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and any(sign in text for sign in SIGNS)


def _is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False

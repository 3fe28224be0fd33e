"""The processes that train one run, seen from one of them: who is who, and what is said to all.

One process is a world too, whose calls cost nothing and touch neither torch nor a network. The first process
(rank 0) alone writes and speaks. How processes find each other is in `gptwright.train.distributed`.

Tensors go over NCCL between CUDA devices and over gloo otherwise; what is no tensor goes as JSON over gloo,
because what would be unpickled could run code. torch is imported by what needs it, so that a wrong setting is
answered before the seconds that takes.
"""

import json
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from gptwright.errors import ConfigError, DataError, PeerFailedError

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """The processes of a run, seen from one of them.

    Attributes:
        rank: this one's number, from 0.
        size: how many there are.
        local_rank: this one's number on its host, which is also its device's.
        local_size: how many there are on this host.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this is the process that writes and speaks."""
        return self.rank == 0

    @property
    def hosts(self) -> int:
        """How many machines there are, if all run as many processes as this one."""
        return max(1, self.size // self.local_size)

    def describe(self) -> str:
        """This process by its rank and host, as messages name it."""
        return f"rank {self.rank} of {self.size} on {socket.gethostname()}"

    def device_request(self, request: str) -> str:
        """The device to ask for in this process: with several, each takes the GPU of its local rank.

        Raises:
            ConfigError: one device is named for all, or one that cannot be shared.
        """
        if self.size == 1 or request == "cpu":
            return request
        if request == "mps" or ":" in request:
            raise ConfigError(
                f"device = {request!r} with {self.size} processes",
                why="each process needs a device of its own, and an Apple GPU has none to share",
                fix="--device=cuda (each takes the GPU of its local rank) or --device=cpu",
            )
        import torch

        if request == "auto" and not torch.cuda.is_available():
            return "cpu"
        return f"cuda:{self.local_rank}"

    def sum(self, tensor: "Tensor") -> "Tensor":
        """The sum over all processes, in place and in all of them."""
        if self.size > 1:
            import torch.distributed as dist

            dist.all_reduce(tensor)
        return tensor

    def mean(self, tensor: "Tensor") -> "Tensor":
        """The mean over all processes, the same number in all of them."""
        return self.sum(tensor) / self.size if self.size > 1 else tensor

    def broadcast(self, tensor: "Tensor") -> None:
        """Gives every process the first one's values, in place."""
        if self.size > 1:
            import torch.distributed as dist

            dist.broadcast(tensor, src=0)

    def from_first(self, action: Callable[[], Any]) -> Any:
        """What the action returns in the first process, in every process.

        Args:
            action: runs in the first process alone; returns what JSON can hold.

        Raises:
            PeerFailedError: it failed there, where its own error is raised.
        """
        if self.size == 1:
            return action()
        if not self.is_first:
            return self._hear()
        try:
            result = action()
        except BaseException:
            self._say(None)
            raise
        self._say(json.dumps(result).encode("utf-8"))
        return result

    def _say(self, content: bytes | None) -> None:
        import torch

        self.broadcast(torch.tensor([-1 if content is None else len(content)]))
        if content:
            self.broadcast(torch.frombuffer(bytearray(content), dtype=torch.uint8))

    def _hear(self) -> Any:
        import torch

        length = torch.zeros(1, dtype=torch.int64)
        self.broadcast(length)
        if length.item() < 0:
            raise PeerFailedError("rank 0 failed")
        content = torch.zeros(int(length.item()), dtype=torch.uint8)
        self.broadcast(content)
        return json.loads(content.numpy().tobytes())

    def all_gather(self, value: Any) -> list[Any]:
        """Every process's value, by rank, in every process; what JSON can hold."""
        if self.size == 1:
            return [value]
        import torch

        own = json.dumps(value).encode("utf-8")
        lengths = torch.zeros(self.size, dtype=torch.int64)
        lengths[self.rank] = len(own)
        self.sum(lengths)
        texts = torch.zeros(self.size, int(lengths.max().item()), dtype=torch.uint8)
        texts[self.rank, : len(own)] = torch.frombuffer(bytearray(own), dtype=torch.uint8)
        self.sum(texts)
        return [
            json.loads(row[:length].numpy().tobytes())
            for row, length in zip(texts, lengths.tolist(), strict=True)
        ]

    def require_same(self, what: str, value: str) -> None:
        """Makes sure that every process has the same: another machine may have another copy.

        Raises:
            DataError: one has not.
        """
        found = self.all_gather([value, socket.gethostname()])
        for rank, (other, host) in enumerate(found):
            if other != found[0][0]:
                raise DataError(
                    f"{what} of rank {rank} on {host} is another than that of rank 0 on {found[0][1]}",
                    why="the processes would not train the same model on the same batches",
                    fix="give every machine the same files and the same command",
                )

    def set_timeout(self, seconds: float) -> None:
        """How long this process waits for the others in one exchange before it takes them for lost."""
        if self.size > 1:
            # torch has no public way to change it after the start; torchtitan uses this one too.
            from torch.distributed.distributed_c10d import _set_pg_timeout

            _set_pg_timeout(timedelta(seconds=seconds))


class StopVote:
    """Whether any process was asked to stop, known to all of them at the same step.

    A vote is cast before a step and counted before the next one: the exchange of one number happens while
    the step computes, on the host, and makes no device wait.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._cast: tuple[Any, Tensor] | None = None

    def __call__(self, asked: bool) -> bool:
        """The outcome of the vote before; casts the next one. A process that is alone decides at once."""
        if self._world.size == 1:
            return asked
        import torch
        import torch.distributed as dist

        outcome = self.count()
        ballot = torch.tensor([int(asked)])
        self._cast = (dist.all_reduce(ballot, async_op=True), ballot)
        return outcome

    def count(self) -> bool:
        """The outcome of the vote that was cast last; False where none was."""
        cast, self._cast = self._cast, None
        if cast is None:
            return False
        work, ballot = cast
        work.wait()
        return bool(ballot.item())


def require_one_process(verb: str) -> None:
    """Refuses a verb that cannot be shared.

    Raises:
        ConfigError: torchrun started several processes.
    """
    size = os.environ.get("WORLD_SIZE") or "1"
    if size != "1":
        raise ConfigError(
            f"{size} processes were started, and {verb} runs in one",
            why="each would do the same work in the same folder",
            fix=f"start {verb} without torchrun; `gptwright train` and `gptwright resume` run under it",
        )


def launch_name() -> str | None:
    """The name of the `torchrun` that started this process: the same after its restarts, and no other's."""
    name = os.environ.get("TORCHELASTIC_RUN_ID")
    if name is None:
        return None
    # Without a name of its own, a launch is the agent process that started the workers of its host.
    return name if name != "none" else f"{socket.gethostname()}:{os.getppid()}"


def was_restarted() -> bool:
    """Whether `torchrun` started this process again after a failure."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT") or 0) > 0

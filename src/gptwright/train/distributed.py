"""How the processes of a run find each other, as `torchrun` starts them, and part at the end.

`torchrun` gives each process its rank in the environment; `joined_world` connects them and hands out a
`World` (`gptwright.train.world`). What ends one of them ends all (`gptwright.train.failures`).
"""

import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

from gptwright.errors import ConfigError, PeerLostError
from gptwright.train.failures import Register
from gptwright.train.world import World

if TYPE_CHECKING:
    from torch.distributed import Store  # type: ignore[attr-defined]

# How long a process waits for the others to appear: NCCL's own default. Hosts of a cluster start minutes
# apart, and importing torch from a cold network disk takes a minute.
JOIN_SECONDS = 600.0

# Between two looks into the store; thousands of processes would still ask it rarely.
MEET_SECONDS = 0.02

# What torchrun sets, and what whoever starts processes otherwise must set too.
NEEDED = ("RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")


@contextmanager
def joined_world() -> Iterator[World]:
    """Connects the processes that `torchrun` started; without it, a world of one.

    What ends one of them ends all, and one of them says why: see `gptwright.train.failures`.

    Raises:
        ConfigError: the environment speaks of several processes and lacks what joins them.
        PeerLostError: the others did not appear, or one was lost.
        PeerFailedError: another one failed and says why.
    """
    size = int(os.environ.get("WORLD_SIZE") or 1)
    if size == 1:
        yield World()
        return
    missing = [name for name in NEEDED if not os.environ.get(name)]
    if missing:
        raise ConfigError(
            f"WORLD_SIZE is {size}, without {', '.join(missing)}",
            why="the processes cannot find each other",
            fix="start them with torchrun, or unset WORLD_SIZE to train in one process",
        )
    world = World(
        rank=int(os.environ["RANK"]),
        size=size,
        local_rank=int(os.environ["LOCAL_RANK"]),
        local_size=int(os.environ.get("LOCAL_WORLD_SIZE") or size),
    )
    register = Register(world)
    try:
        register.enter(_join(world))
        yield world
        _leave()
    except Exception as error:
        told = register.told_once(error)
        if told is error:
            raise
        raise told from None


def _join(world: World) -> str:
    """Connects the processes; returns the name of this start."""
    import torch.distributed as dist
    from torch.distributed.rendezvous import rendezvous

    try:
        timeout = timedelta(seconds=JOIN_SECONDS)
        store, _, _ = next(rendezvous("env://", timeout=timeout))
        name = meet(store, world)
        dist.init_process_group(
            backends(),
            store=dist.PrefixStore(name, store),  # type: ignore[attr-defined]
            rank=world.rank,
            world_size=world.size,
            timeout=timeout,
        )
    except (dist.DistError, RuntimeError) as error:
        raise PeerLostError(
            f"the {world.size} processes did not find each other at"
            f" {os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}",
            why=str(error).splitlines()[0],
            fix="see that every machine reaches that address; with several network cards, name the one to"
            " use in GLOO_SOCKET_IFNAME (and NCCL_SOCKET_IFNAME)",
        ) from None
    return name


def backends() -> str:
    """What a group of processes talks over, as torch names it: NCCL between CUDA devices, else gloo."""
    import torch
    import torch.distributed as dist

    gpus = torch.cuda.is_available() and dist.is_nccl_available()
    return "cpu:gloo,cuda:nccl" if gpus else "gloo"


def meet(store: "Store", world: World) -> str:
    """A name for this start of the processes, the same in all of them and used by no start before.

    torchrun keeps one store over its restarts (torch 2.13), where the addresses of processes that are gone
    still lie: whoever is early takes a dead one's for its successor's, and is refused or waits for ever.
    Counting restarts does not help, as each host counts its own. So nobody believes what it finds: each
    process says something new, and the first one's answer must repeat it.

    Raises:
        DistStoreError: some did not appear.
    """
    own, deadline = uuid.uuid4().hex, time.monotonic() + JOIN_SECONDS
    missing = set(range(1, world.size)) if world.is_first else {0}
    if not world.is_first:
        store.set(f"hello/{world.rank}", own)
    while missing:
        if world.is_first:
            _answer(store, own, missing)
        elif store.check([f"answer/{world.rank}"]):
            repeated, name = store.get(f"answer/{world.rank}").decode().split()
            if repeated == own:
                store.set(f"heard/{name}/{world.rank}", "")
                return str(name)
        if time.monotonic() > deadline:
            from torch.distributed import DistStoreError

            raise DistStoreError(f"nothing was heard of rank {min(missing)} for {JOIN_SECONDS:g} s")
        time.sleep(MEET_SECONDS)
    return own


def _answer(store: "Store", name: str, missing: set[int]) -> None:
    """Tells whoever says hello the name, and takes those who have heard it off the list."""
    for rank in sorted(missing):
        if store.check([f"heard/{name}/{rank}"]):
            missing.remove(rank)
        elif store.check([f"hello/{rank}"]):
            store.set(f"answer/{rank}", f"{store.get(f'hello/{rank}').decode()} {name}")


def _leave() -> None:
    """Ends together, so that none still talks to one that has gone."""
    import torch.distributed as dist

    dist.barrier()
    dist.destroy_process_group()

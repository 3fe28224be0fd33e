"""Worlds of several processes, one after another, each training several runs; a program of its own.

    python ranks_driver.py PLAN.json

torch is imported once and computes nothing before a fork. PLAN is a list of worlds, `{"size": N, "runs":
[…]}`; a run has `out` and either `options` (a new run) or `overrides` (it goes on), and may have `stop_at`:
rank 1 (the only one, where there is one) then sends itself SIGTERM after so many steps. Each world is one
process group, joined as `torchrun` would have it joined. Prints one JSON line: for each world its ranks' exit
statuses, and for each rank the step at which each run ended.
"""

import json
import os
import signal
import socket
import sys
import traceback
from pathlib import Path
from typing import Any

import torch._dynamo
import torch.distributed.checkpoint
import torch.distributed.fsdp
import torch.distributed.tensor  # noqa: F401 - imported once, for all children

from gptwright.config.load import load_config
from gptwright.record.run import RunFolder
from gptwright.train.distributed import World, joined_world
from gptwright.train.run import prepare_new, prepare_resume, train_prepared
from gptwright.train.settle import run_settings


class Stopper:
    """A listener that may send its own process SIGTERM."""

    def __init__(self, stop_at: int | None) -> None:
        self.stop_at = stop_at

    def recorded(self, record: dict[str, Any]) -> None:
        pass

    def stepped(self, step: int) -> None:
        if step + 1 == self.stop_at:
            os.kill(os.getpid(), signal.SIGTERM)


def train(run: dict[str, Any], world: World) -> int:
    """One run of this process; returns the step at which it ended."""
    out = RunFolder(Path(run["out"]))
    if "options" in run:
        loaded = load_config([], run["options"] | {"out_dir": str(out.path)})
        prepared = prepare_new(loaded, world=world)
    else:
        prepared = prepare_resume(out, run_settings(out, run["overrides"], world=world), world=world)
    signalled = world.rank == min(1, world.size - 1)
    return train_prepared(prepared, Stopper(run.get("stop_at") if signalled else None)).state.step


def child(plan: dict[str, Any], rank: int, port: int, result: Path) -> None:
    """What one rank does: joins, trains every run, leaves."""
    os.environ |= {
        "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(plan["size"]),
        "LOCAL_WORLD_SIZE": str(plan["size"]), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
    }  # fmt: skip
    with joined_world() as world:
        ends = [train(run, world) for run in plan["runs"]]
    result.write_text(json.dumps(ends))


def run_world(plan: dict[str, Any], number: int) -> dict[str, Any]:
    """Forks the ranks of one world and waits for them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    results = [Path(f"world-{number}-rank-{rank}.json") for rank in range(plan["size"])]
    children = []
    for rank, result in enumerate(results):
        pid = os.fork()
        if pid == 0:
            try:
                child(plan, rank, port, result)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        children.append(pid)
    statuses = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
    return {
        "statuses": statuses,
        "ends": [json.loads(result.read_text()) for result in results if result.exists()],
    }


def main() -> None:
    """Runs every world of the plan."""
    plans = json.loads(Path(sys.argv[1]).read_text())
    print(json.dumps([run_world(plan, number) for number, plan in enumerate(plans)]))


if __name__ == "__main__":
    main()

"""Worlds of several processes, one after another, each training several runs; a program of its own.

    python ranks_driver.py PLAN.json

torch is imported once and computes nothing before a fork. PLAN is a list of worlds, `{"size": N, "runs":
[…]}`; a run has `out` and either `options` (a new run) or `overrides` (it goes on), and what happens to it.
To rank 1 (the only one, where there is one): `stop_at` sends it SIGTERM after so many steps, `nan_at` makes
its loss no number at these steps, `no_memory_at` fails an allocation at this one. `damaged` flips a bit of
the newest checkpoint before; `tried` has a step tried first; a world's `locked` is a run folder that
another process writes meanwhile. Each world is one process group, joined as `torchrun` would have it
joined. Prints one JSON line: for each world its ranks' exit statuses, and for each rank the step at which
each run ended.
"""

import contextlib
import json
import os
import signal
import socket
import sys
import traceback
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch._dynamo
import torch.distributed.checkpoint
import torch.distributed.fsdp
import torch.distributed.tensor

from gptwright.config.load import load_config
from gptwright.record.lock import RunLock
from gptwright.record.run import RunFolder
from gptwright.train.distributed import joined_world
from gptwright.train.run import prepare_new, prepare_resume, train_prepared
from gptwright.train.settle import run_settings
from gptwright.train.world import World


class Fate:
    """A listener, and the model's forward, that let something happen to their own process."""

    def __init__(self, run: dict[str, Any], forward: Any) -> None:
        self.stop_at = run.get("stop_at")
        self.nan_at = list(run.get("nan_at", ()))
        self.no_memory_at = run.get("no_memory_at")
        self.forward = forward
        self.step = 0

    def recorded(self, record: dict[str, Any]) -> None:
        pass

    def stepped(self, step: int) -> None:
        self.step = step + 1
        if self.step == self.stop_at:
            os.kill(os.getpid(), signal.SIGTERM)

    def __call__(self, *tensors: torch.Tensor, **named: Any) -> torch.Tensor:
        loss: torch.Tensor = self.forward(*tensors, **named)
        if self.step == self.no_memory_at:
            raise torch.OutOfMemoryError("an allocation failed")
        if torch.is_grad_enabled() and self.step in self.nan_at:
            self.nan_at.remove(self.step)
            loss = loss * torch.nan
        return loss


def train(run: dict[str, Any], world: World) -> int:
    """One run of this process; returns the step at which it ended."""
    out = RunFolder(Path(run["out"]))
    if "options" in run:
        loaded = load_config([], run["options"] | {"out_dir": str(out.path)})
        prepared = prepare_new(loaded, world=world)
    else:
        prepared = prepare_resume(out, run_settings(out, run["overrides"], world=world), world=world)
    replica = prepared.session.replica
    fate = Fate(run if world.rank == min(1, world.size - 1) else {}, replica.forward)
    object.__setattr__(replica, "forward", fate)
    # As on a GPU, a step and an evaluation are tried before the first.
    limit = mock.patch("gptwright.train.fitting.has_address_limit", return_value=True)
    with limit if run.get("tried") else contextlib.nullcontext():
        return train_prepared(prepared, fate, hook=run.get("hook")).state.step


def damage(out: Path) -> None:
    """Flips a bit in the newest checkpoint."""
    file = sorted(sorted((out / "checkpoints").glob("step-*"))[-1].glob("*.safetensors"))[-1]
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)


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
    locks = [RunLock(Path(plan["locked"]))] if "locked" in plan else []
    for run in plan["runs"]:
        if run.get("damaged"):
            damage(Path(run["out"]))
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
    for lock in locks:
        lock.release()
    return {
        "statuses": statuses,
        "ends": [json.loads(result.read_text()) for result in results if result.exists()],
    }


def main() -> None:
    """Runs every world of the plan."""
    plans = json.loads(Path(sys.argv[1]).read_text())
    # Numbers about the machine, which no test of this looks at and which take each rank a second.
    mock.patch("gptwright.train.session.measure_matmul_peak", return_value=1e11).start()
    mock.patch("gptwright.plan.device.measure_cpu_peak", return_value=1e11).start()
    mock.patch("os.fsync", return_value=None).start()
    print(json.dumps([run_world(plan, number) for number, plan in enumerate(plans)]))


if __name__ == "__main__":
    main()

"""Worlds of several processes that tests look at: what they train, and how it is started once for all."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gptwright.record.metrics import read_metrics
from tests.conftest import TINY

STEPS = 50
# What happens to a run; see the driver.
Fate = dict[str, Any]
DRIVER = Path(__file__).with_name("ranks_driver.py")


def new(name: str, options: dict[str, str], fate: Fate | None = None, **more: str) -> dict[str, Any]:
    return {"out": name, "options": options | more} | (fate or {})


def on(name: str, fate: Fate | None = None, **overrides: str) -> dict[str, Any]:
    return {"out": name, "overrides": overrides} | (fate or {})


def some_steps(dataset: Path) -> dict[str, str]:
    """The settings that most runs have."""
    return TINY | {
        "dataset": str(dataset), "learning_rate": "1e-3", "min_lr": "1e-4", "max_iters": str(STEPS),
        "lr_decay_iters": str(STEPS), "eval_interval": "25",
    }  # fmt: skip


def long_run(dataset: Path) -> dict[str, str]:
    """A run of some seconds, with a checkpoint every ten steps."""
    return some_steps(dataset) | {
        "max_iters": "120", "lr_decay_iters": "120", "eval_interval": "60", "checkpoint_interval": "10",
        "dropout": "0.1", "log_interval": "5",
    }  # fmt: skip


def plan(dataset: Path) -> list[dict[str, Any]]:
    """All runs of these tests, in seven worlds, so that seven groups of processes do."""
    options = some_steps(dataset)
    dropping = options | {"dropout": "0.2", "parallel": "ddp"}
    # Three processes gather sharded weights for nine passes a step, which is slow: five steps. They save
    # memory in every way there is, which changes no loss.
    uneven = options | {
        "batch_size": "1", "gradient_accumulation_steps": "8", "eval_iters": "8", "max_iters": "5",
        "gradient_checkpointing": "True", "loss_chunk": "24",
    }  # fmt: skip
    longer = long_run(dataset)
    # A loss that is none at step 3 is skipped, and the next one, at 7, is too much.
    troubled = options | {
        "max_iters": "12", "eval_interval": "6", "checkpoint_interval": "2", "skip_budget": "1",
    }  # fmt: skip
    trouble = {"nan_at": [3, 7], "hook": "true"}
    return [
        {
            "size": 1,
            "runs": [
                new("one", options),
                new("one-dropping", dropping),
                new("one-troubled", troubled, trouble),
            ],
        },
        {
            "size": 2,
            "runs": [
                new("whole", longer),
                new("ddp-2", options, {"tried": True}, parallel="ddp"),
                new("fsdp-2", options, {"tried": True}, parallel="fsdp"),
                new("ddp-chain", options, {"stop_at": 19}, parallel="ddp"),
                new("fsdp-chain", options, {"stop_at": 19}, parallel="fsdp"),
                new("dropping", dropping),
                new("dropping-stopped", dropping, {"stop_at": 30}),
                new("ddp-troubled", troubled, trouble, parallel="ddp"),
                new("fsdp-troubled", troubled, trouble, parallel="fsdp"),
            ],
        },
        {"size": 1, "runs": [on(f"{name}-chain", {"stop_at": 35}) for name in ("ddp", "fsdp")]},
        {
            "size": 3,
            "runs": [
                on("ddp-chain", parallel="fsdp"),
                on("fsdp-chain", parallel="ddp"),
                new("ddp-3", uneven, {"tried": True}, parallel="ddp"),
                new("fsdp-3", uneven, {"tried": True}, parallel="fsdp"),
            ],
        },
        {
            "size": 2,
            "runs": [
                on("dropping-stopped"),
                on("ddp-troubled", {"damaged": True}, max_iters="14"),
                on("fsdp-troubled", {"damaged": True}, max_iters="14"),
            ],
        },
        {"size": 2, "runs": [on("one", max_iters="60")], "locked": "one"},
        {"size": 2, "runs": [new("no-memory", options, {"no_memory_at": 1})]},
    ]


def guard_lines(run: Path) -> list[dict[str, Any]]:
    """What guards did, without when."""
    records = [r for r in read_metrics(run / "metrics.jsonl") if r["kind"] == "guard"]
    return [{key: value for key, value in record.items() if key != "time"} for record in records]


class Worlds:
    """What the driver left: the folder of the runs, and how every rank of every world ended."""

    def __init__(self, folder: Path, worlds: list[dict[str, Any]], said: str) -> None:
        self.folder = folder
        self.worlds = worlds
        self.said = said

    def losses(self, name: str) -> np.ndarray:
        records = read_metrics(self.folder / name / "metrics.jsonl")
        return np.array([r["loss"] for r in records if r["kind"] == "train"])

    def windows(self, name: str, step: int) -> np.ndarray:
        """The validation losses of one evaluation."""
        array: np.ndarray = np.load(self.folder / name / "evaluations" / f"val-{step:08d}.npy")
        return array


@pytest.fixture(scope="session")
def worlds(tmp_path_factory: pytest.TempPathFactory, dataset: Path) -> Worlds:
    if not hasattr(os, "fork"):
        pytest.skip("the driver forks, so that torch is imported once")
    folder = tmp_path_factory.mktemp("worlds")
    (folder / "plan.json").write_text(json.dumps(plan(dataset)))
    done = subprocess.run(
        [sys.executable, str(DRIVER), "plan.json"],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout)
    assert all(status == 0 for world in result[:-2] for status in world["statuses"]), done.stderr[-3000:]
    return Worlds(folder, result, done.stderr)

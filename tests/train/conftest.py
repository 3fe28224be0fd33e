"""Runs in this process, stopped by real signals where a test wants it."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file
from torch import Tensor

from gptwright.config.load import load_config
from gptwright.record.metrics import Record, read_metrics
from gptwright.record.run import RunFolder
from gptwright.train.distributed import backends
from gptwright.train.loop import Outcome
from gptwright.train.run import prepare_new, prepare_resume, train_prepared
from tests.train.worlds import worlds

__all__ = ["worlds"]

# What two runs that made the same steps may differ in.
CLOCK_FIELDS = {"time", "seconds", "tokens_per_second", "mfu", "peak_flops"}


class Watcher:
    """Hears a run, and sends SIGTERM to this process once `stop_at` steps are made."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.records: list[Record] = []
        self.stop_at = stop_at

    def recorded(self, record: Record) -> None:
        self.records.append(record)

    def stepped(self, step: int) -> None:
        if step + 1 == self.stop_at:
            os.kill(os.getpid(), signal.SIGTERM)


Train = Callable[..., Outcome]


def train_new(options: dict[str, str], out: Path, stop_at: int | None = None) -> Outcome:
    """Trains a new run, to its end or until a signal after so many steps."""
    loaded = load_config([], options | {"out_dir": str(out)})
    return train_prepared(prepare_new(loaded), Watcher(stop_at))


@pytest.fixture
def train() -> Train:
    """Trains a new run: `train(options, out_dir, stop_at=None)`."""
    return train_new


@pytest.fixture
def resume() -> Train:
    """Goes on with a run: `resume(out_dir, stop_at=None, checkpoint=None, **overrides)`."""

    def call(
        out: Path,
        stop_at: int | None = None,
        checkpoint: str | None = None,
        allow_lr_jump: bool = False,
        **overrides: str,
    ) -> Outcome:
        run = RunFolder.existing(out)
        loaded = run.load_config(overrides)
        prepared = prepare_resume(run, loaded, checkpoint=checkpoint, allow_lr_jump=allow_lr_jump)
        return train_prepared(prepared, Watcher(stop_at))

    return call


@pytest.fixture
def alone() -> Iterator[None]:
    """A process group of this process, as torchrun's are connected."""
    dist.init_process_group(backends(), rank=0, world_size=1, store=dist.HashStore())  # type: ignore[attr-defined]
    yield
    dist.destroy_process_group()


def weights(out: Path) -> dict[str, Tensor]:
    """All tensors of a run's newest checkpoint: weights and moments."""
    run = RunFolder(out)
    folder = run.checkpoints / run.checkpoint_names()[-1]
    return load_file(folder / "model.safetensors") | load_file(folder / "optimizer.safetensors")


def assert_same_weights(a: Path, b: Path) -> None:
    """Bit for bit."""
    left, right = weights(a), weights(b)
    assert left.keys() == right.keys()
    different = [name for name, tensor in left.items() if not torch.equal(tensor, right[name])]
    assert not different


def story(out: Path) -> list[dict[str, Any]]:
    """A run's metrics without clocks and without the lines of stopping and resuming."""
    return [
        {name: value for name, value in record.items() if name not in CLOCK_FIELDS}
        for record in read_metrics(out / "metrics.jsonl")
        if record["kind"] in ("train", "eval", "start")
    ]

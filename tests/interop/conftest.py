"""Runs of ours and checkpoints of others, made in milliseconds."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from gptwright.config.load import load_config
from gptwright.interop.trained import TrainedRun
from gptwright.model.gpt import GPT
from gptwright.record.run import RunFolder
from gptwright.train.load import open_trained
from gptwright.train.run import prepare_new, train_prepared
from tests.train.conftest import Watcher

MakeRun = Callable[..., TrainedRun]


@pytest.fixture
def make_run(tmp_path: Path, tiny: dict[str, str]) -> MakeRun:
    """Trains a run: `make_run(name, **options)`."""

    def call(name: str = "run", **options: str) -> TrainedRun:
        loaded = load_config([], tiny | {"max_iters": "6", "out_dir": str(tmp_path / name)} | options)
        train_prepared(prepare_new(loaded), Watcher())
        return open_trained(RunFolder(tmp_path / name), checkpoint="last")

    return call


def assert_same_run(a: TrainedRun, b: TrainedRun, *, moments: bool = True) -> None:
    """Bit for bit, shapes and steps included."""
    assert a.shape == b.shape
    assert a.weights.keys() == b.weights.keys()
    assert all(torch.equal(tensor, b.weights[name]) for name, tensor in a.weights.items())
    if moments:
        assert a.step == b.step
        assert a.moments is not None
        assert b.moments is not None
        assert a.moments.step == b.moments.step
        for mine, other in (
            (a.moments.exp_avg, b.moments.exp_avg),
            (a.moments.exp_avg_sq, b.moments.exp_avg_sq),
        ):
            assert mine.keys() == other.keys()
            assert all(torch.equal(tensor, other[name]) for name, tensor in mine.items())


def nanogpts_checkpoint(
    model: GPT, optimizer: torch.optim.Optimizer, *, step: int, prefix: str = ""
) -> dict[str, object]:
    """What nanoGPT's train.py saves; its best loss is a tensor, as there."""
    shape = model.shape
    return {
        "model": {f"{prefix}{name}": tensor for name, tensor in model.state_dict().items()},
        "optimizer": optimizer.state_dict(),
        "model_args": {
            "n_layer": shape.n_layer, "n_head": shape.n_head, "n_embd": shape.n_embd,
            "block_size": shape.block_size, "bias": shape.bias, "vocab_size": shape.vocab_size,
            "dropout": shape.dropout,
        },
        "iter_num": step,
        "best_val_loss": torch.tensor(1.25),
        "config": {
            "out_dir": "out", "eval_interval": 8, "log_interval": 1, "eval_iters": 2, "eval_only": False,
            "always_save_checkpoint": False, "init_from": "scratch", "wandb_log": False, "dataset": "nowhere",
            "gradient_accumulation_steps": 2, "batch_size": 4, "block_size": shape.block_size,
            "n_layer": shape.n_layer, "n_head": shape.n_head, "n_embd": shape.n_embd, "dropout": 0.0,
            "bias": shape.bias, "learning_rate": 1e-2, "max_iters": 24, "weight_decay": 0.1, "beta1": 0.9,
            "beta2": 0.95, "grad_clip": 1.0, "decay_lr": True, "warmup_iters": 4, "lr_decay_iters": 24,
            "min_lr": 1e-3, "backend": "nccl", "device": "cuda", "dtype": "bfloat16", "compile": True,
        },
    }  # fmt: skip

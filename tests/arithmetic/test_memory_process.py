"""Predicted memory of trainings on a CPU against what the kernel counted for a process that made them.

Another build of torch takes another amount to load, so a training of next to nothing is measured first and
takes the place of the constant; where torch has no GPU libraries the constant itself is checked.
"""

import functools
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from gptwright.arithmetic.memory import GPU_LIBRARIES, PROCESS, training_memory
from gptwright.arithmetic.shape import ModelShape
from gptwright.arithmetic.step import Step
from gptwright.hardware.detect import find_device
from gptwright.hardware.torch_build import has_gpu_libraries
from gptwright.kernels.library import Missing, load_kernels
from tests.conftest import LONG

PREDICTED_PROCESS = PROCESS + (GPU_LIBRARIES if has_gpu_libraries() else 0)
SCRIPT = Path(__file__).parents[2] / "benchmarks" / "memory.py"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="the peak of a process is read from Linux' /proc"),
]


def measured_peak(shape: ModelShape, micro_batch: int, accumulation: int, dtype: str = "float32") -> int:
    settings = {
        "n_layer": shape.n_layer,
        "n_head": shape.n_head,
        "n_embd": shape.n_embd,
        "block_size": shape.block_size,
        "vocab_size": shape.vocab_size,
        "dropout": shape.dropout,
        "loss_chunk": shape.loss_chunk,
        "gradient_checkpointing": shape.gradient_checkpointing,
        "batch_size": micro_batch,
        "gradient_accumulation_steps": accumulation,
        "dtype": dtype,
        "kernels": shape.kernels,
        "compile": False,
        "device": "cpu",
        "max_iters": 2,  # the first makes the moments, the second has them beside all the rest
        "lr_decay_iters": 2,
    }
    command = [sys.executable, str(SCRIPT), "--one", json.dumps(settings)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert not done.returncode, done.stderr
    peak: int = json.loads(done.stdout.splitlines()[-1])["process"]
    return peak


def shape(
    n_layer: int,
    n_head: int,
    n_embd: int,
    block_size: int,
    vocab_size: int,
    *,
    dropout: float = 0.0,
    chunk: int = 0,
    checkpointing: bool = False,
    kernels: bool = False,
) -> ModelShape:
    return ModelShape(
        n_layer=n_layer,
        n_head=n_head,
        n_embd=n_embd,
        block_size=block_size,
        vocab_size=vocab_size,
        bias=False,
        tie_weights=True,
        dropout=dropout,
        loss_chunk=chunk,
        gradient_checkpointing=checkpointing,
        kernels=kernels,
    )


# The short form takes every other one; each is another thing that fills the memory. Most of those are
# narrow: a narrow model fills as much in a fraction of the time.
TRAININGS = [
    (shape(6, 4, 64, 64, 65), 256, 1),  # all in the heap
    (shape(4, 4, 256, 256, 8000), 16, 1),  # logits with a mapping of their own
    (shape(1, 2, 32, 256, 50304), 4, 2),  # nearly all of it logits
    (shape(4, 4, 128, 64, 65), 64, 4),  # old gradients among the activations
    # All given back that can be; without checkpointing it would be a fifth more.
    (shape(8, 4, 64, 64, 1000, chunk=64, checkpointing=True), 192, 1),
    (shape(4, 4, 256, 256, 256, dropout=0.1), 16, 1),  # attention written out
]
# With our own kernels, where the process keeps all that it frees unless it is to be small. Where logits are
# most of it, one run in two needs their room twice (docs/memory.md).
WITH_KERNELS = [
    (shape(4, 4, 128, 128, 4000, kernels=True), 64, 2),  # logits among the activations
    (shape(6, 6, 384, 256, 65, kernels=True), 16, 1),  # nearly all of it activations
    (shape(8, 4, 64, 64, 1000, chunk=64, checkpointing=True, kernels=True), 192, 1),
    (shape(4, 4, 128, 64, 65, kernels=True), 12, 1),  # nearly all of it torch
    (shape(2, 4, 256, 256, 50304, kernels=True), 4, 2),  # tables
    (shape(12, 12, 768, 1024, 50304, kernels=True), 1, 1),
]


@functools.cache
def bare_process() -> int:
    return measured_peak(shape(1, 1, 8, 8, 64), 1, 1)


def test_the_process_itself() -> None:
    assert bare_process() == pytest.approx(PREDICTED_PROCESS, rel=0.15)


@pytest.mark.parametrize(("model", "micro_batch", "accumulation"), TRAININGS if LONG else TRAININGS[::2])
def test_within_ten_percent_of_the_measured_peak(
    model: ModelShape, micro_batch: int, accumulation: int
) -> None:
    assert_predicted(model, micro_batch, accumulation)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    ("model", "micro_batch", "accumulation"), WITH_KERNELS if LONG else WITH_KERNELS[:3:2]
)
def test_within_ten_percent_of_the_measured_peak_with_our_own_kernels(
    model: ModelShape, micro_batch: int, accumulation: int, dtype: str
) -> None:
    if dtype not in find_device("cpu").native_dtypes:
        pytest.skip(f"this CPU has no {dtype}")
    if isinstance(missing := load_kernels(getattr(torch, dtype)), Missing):
        pytest.skip(missing.reason)
    assert_predicted(model, micro_batch, accumulation, dtype)


def assert_predicted(model: ModelShape, micro_batch: int, accumulation: int, dtype: str = "float32") -> None:
    measured = measured_peak(model, micro_batch, accumulation, dtype)
    step = Step(
        shape=model,
        micro_batch=micro_batch,
        dtype=dtype,
        compiled=False,
        accumulation=accumulation,
        device_kind="cpu",
        gpu_libraries=has_gpu_libraries(),
    )
    predicted = training_memory(step)
    assert predicted.total - PREDICTED_PROCESS + bare_process() == pytest.approx(measured, rel=0.1), predicted

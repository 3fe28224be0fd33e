"""What a step, an evaluation and generation ask of a device, on one that holds no numbers.

torch's meta device refuses what makes a host wait for a GPU: a number, a shape that depends on numbers. What
else a GPU refuses is looked for in every operation: tensors of main memory among its own, and on an Apple GPU
float64.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from gptwright.arithmetic.shape import ModelShape
from gptwright.config.load import load_config
from gptwright.hardware.detect import Device
from gptwright.model.drawing import SamplingOptions
from gptwright.model.generate import Batch, Stream
from gptwright.model.gpt import GPT
from gptwright.optim.optimizers import build_optimizer
from gptwright.record.metrics import MetricsFile
from gptwright.train import score
from gptwright.train.hook import Hook
from gptwright.train.loop import Trainer
from gptwright.train.memory import try_step
from gptwright.train.precision import Precision
from gptwright.train.replica import Replica
from gptwright.train.run import prepare_new
from gptwright.train.state import TrainState
from tests.train.conftest import Watcher

GPU = Device(
    type="meta", index=None, name="none", memory_bytes=2**34, native_dtypes=("float32", "float16"), detail=""
)
MODERN = {"arch": "modern", "optimizer": "muon"}


class LikeAGpu(TorchDispatchMode):
    """Fails where tensors of the device and of main memory meet other than in a copy.

    Args:
        float64: whether the device has it; else making some fails too.
    """

    def __init__(self, *, float64: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.float64 = float64

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        if func._schema.name not in ("aten::copy_", "aten::_to_copy"):
            # A number may be in main memory.
            places = {tensor.device.type for tensor in given if tensor.dim()}
            assert len(places) < 2, f"{func} mixes {places}"
        made = func(*args, **(kwargs or {}))
        here = [t for t in tree_leaves(made) if isinstance(t, Tensor) and t.device.type == GPU.type]
        assert self.float64 or torch.float64 not in {t.dtype for t in here}, f"{func} makes float64"
        return made


@pytest.fixture
def trainer(
    request: pytest.FixtureRequest, tmp_path: Path, tiny: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Trainer, bool]]:
    """A run on that device, and whether its gradients are scaled for float16."""
    settings, scaled = request.param
    # Which this device has not.
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda _: False)
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: contextlib.nullcontext())
    options = tiny | settings | {"spike_z": "5", "out_dir": str(tmp_path / "run")}
    prepared = prepare_new(load_config([], options))
    session, metrics = prepared.session, MetricsFile(prepared.run.metrics_path, keep_bytes=0)
    model = session.model.to(GPU.torch_device)
    session = replace(
        session,
        precision=Precision(GPU, "float32"),
        replica=Replica(model),
        optimizer=build_optimizer(model, session.config, fused=True),
        scaler=torch.amp.GradScaler(GPU.type, enabled=scaled),
    )
    yield (
        Trainer(
            session,
            prepared.run,
            state=TrainState(norms_seen=200),
            metrics=metrics,
            listener=Watcher(),
            hook=Hook(None, run=prepared.run.path),
        ),
        scaled,
    )
    metrics.close()
    prepared.let_go()


@pytest.mark.parametrize(
    "trainer",
    [
        ({}, False),
        ({}, True),
        (MODERN, False),
        (MODERN, True),
        ({"dropout": "0.1", "gradient_checkpointing": "True"}, False),
        ({"loss_chunk": "16"}, True),
        ({"grad_clip": "0"}, False),
    ],
    indirect=True,
    ids=str,
)
def test_nothing_waits_for_the_device_or_leaves_it(trainer: tuple[Trainer, bool]) -> None:
    run, scaled = trainer
    model = run.session.model
    # GradScaler inverts its scale in float64, but on an Apple GPU in float32.
    with run.batches, LikeAGpu(float64=scaled):
        try_step(run.session, run.fitting.cut)
        for step in range(2):
            made = run._update(step)
            assert {number.device.type for number in made} == {GPU.type}
        assert run.evaluator._losses_of("val", run.evaluator.starts["val"][:3]).shape == (3,)
        model.eval()
        batch = Batch(model, 2)
        for prompt in ([1], [1, 2, 3]):
            batch.join(Stream(prompt, SamplingOptions()))
        with torch.inference_mode():
            assert [batch._logits().device.type for _ in range(2)] == [GPU.type] * 2


def test_what_is_scored_leaves_the_device_before_it_is_widened(monkeypatch: pytest.MonkeyPatch) -> None:
    def to_main_memory(losses: Tensor) -> Tensor:
        return torch.zeros(losses.shape, dtype=losses.dtype)

    monkeypatch.setattr(Tensor, "cpu", to_main_memory)
    shape = ModelShape.of(load_config([], {"n_layer": "1", "n_head": "2", "n_embd": "8"}).config, 64)
    model = GPT(shape).to(GPU.torch_device).eval()
    with LikeAGpu(float64=False):
        found = score.token_losses(model, torch.zeros((2, 5), dtype=torch.int64), Precision(GPU, "float32"))
    assert found.shape == (2, 4)


def test_our_own_kernels_are_for_main_memory_alone() -> None:
    """A run that had them speaks and is scored on a GPU too, whose addresses they cannot read."""
    options = {"n_layer": "1", "n_head": "2", "n_embd": "8", "kernels": "True"}
    model = GPT(ModelShape.of(load_config([], options).config, 64)).to(GPU.torch_device)
    assert model.recipe(4) is None


def test_the_device_refuses_what_a_gpu_would() -> None:
    numbers = torch.ones(2, device=GPU.torch_device)
    with pytest.raises(RuntimeError, match="item"):
        float(numbers[0])
    with LikeAGpu(float64=False):
        with pytest.raises(AssertionError, match="makes float64"):
            numbers.double()
        with pytest.raises(AssertionError, match="mixes"):
            numbers + torch.ones(2)

"""`plan --measure`: a few real steps on the device here."""

import functools
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor

from gptwright.config.schema import TrainConfig
from gptwright.errors import DeviceError
from gptwright.facts import stated
from gptwright.hardware.detect import find_device
from gptwright.hardware.limits import MemoryLimit
from gptwright.plan.plan import make_plan
from gptwright.train import measure as measuring
from gptwright.train import precision
from gptwright.train.precision import Precision
from tests.conftest import Answer

SMALL: dict[str, Any] = {
    "n_layer": 2,
    "n_head": 2,
    "n_embd": 64,
    "block_size": 32,
    "batch_size": 4,
    "gradient_accumulation_steps": 6,
    "device": "cpu",
    "vocab_size": 65,
    # How a CPU multiplies takes seconds to choose, and is for test_products.py.
    "dtype": "float32",
    "kernels": False,
}


@pytest.fixture(autouse=True)
def short_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "SECONDS_A_TRIAL", 0.2)


def test_every_cut_keeps_the_step_and_the_fastest_is_proposed() -> None:
    config = TrainConfig(**SMALL)
    measured = measuring.measure(make_plan(config, {"dataset": stated("dataset", "own")}, sources={}))
    assert measured.trials[0].micro_batch == 4
    assert len({trial.micro_batch for trial in measured.trials}) == len(measured.trials) > 1
    for trial in measured.trials:
        assert trial.micro_batch * trial.accumulation == 24
        assert trial.step_seconds is not None
        fast, median, slow = trial.step_seconds
        assert 0 < fast <= median <= slow
    best = min(measured.trials, key=lambda trial: trial.step_seconds[1] if trial.step_seconds else 0.0)
    assert measured.config.batch_size == best.micro_batch
    assert measured.config.sequences_per_step == config.sequences_per_step
    assert best.step_seconds is not None
    assert measured.speed.likely == pytest.approx(24 * 32 / best.step_seconds[1])
    assert "measured just now" in measured.speed.basis


def test_what_a_cpu_would_be_killed_for_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "memory_limit", lambda: MemoryLimit(2**20, "control group"))
    plan = make_plan(TrainConfig(**SMALL), {"dataset": stated("dataset", "own")}, sources={})
    with pytest.raises(DeviceError, match=r"no micro-batch of this model [\s\S]*4: a step would need about"):
        measuring.measure(plan)


def test_an_allocation_that_fails_is_a_trial_that_did_not_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    message = "[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory: you tried"
    monkeypatch.setattr(measuring, "_step_seconds", mock.Mock(side_effect=RuntimeError(message)))
    plan = make_plan(TrainConfig(**SMALL), {"dataset": stated("dataset", "own")}, sources={})
    with pytest.raises(DeviceError, match=r"4: out of memory"):
        measuring.measure(plan)


@pytest.mark.parametrize(("compiles", "variants"), [(True, [True, False]), (False, [False])])
def test_on_a_gpu_a_step_is_compiled_only_where_it_can_be(
    monkeypatch: pytest.MonkeyPatch, *, compiles: bool, variants: list[bool]
) -> None:
    device = replace(find_device("cpu"), type="cuda", index=0)
    tried: list[bool] = []

    def seconds(_1: object, _2: object, _3: object, _4: object, compiled: bool) -> tuple[float, float, float]:
        tried.append(compiled)
        return 1.0, 1.0, 1.0

    nothing: Callable[..., None] = lambda *_: None  # noqa: E731
    for name in ("use_device", "allow_tf32", "give_back"):
        monkeypatch.setattr(measuring, name, nothing)
    monkeypatch.setattr(measuring, "find_device", lambda _: device)
    monkeypatch.setattr(
        measuring, "choose_precision", lambda **_: (Precision(device, "float32"), compiles, [])
    )
    monkeypatch.setattr(measuring, "_step_seconds", seconds)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda _: 2**30)
    config = replace(TrainConfig(**SMALL), compile="auto")
    measured = measuring.measure(make_plan(config, {"dataset": stated("dataset", "own")}, sources={}))
    assert list(dict.fromkeys(tried)) == variants
    assert {trial.peak_bytes for trial in measured.trials} == {2**30}


def test_every_cut_is_compiled_for_its_own_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a run would; a second size would otherwise be compiled for any, which is slower."""
    sizes: list[int] = []

    def compiled(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        sizes.extend(len(given) for given in inputs if isinstance(given, Tensor) and given.dim() == 2)
        return graph.forward

    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend=compiled))
    monkeypatch.setattr(precision, "try_compiler", lambda: (True, "compiled"))
    config = replace(TrainConfig(**SMALL), compile=True)
    measured = measuring.measure(make_plan(config, {"dataset": stated("dataset", "own")}, sources={}))
    cuts = [trial.micro_batch for trial in measured.trials]
    assert [size for size in sizes if size in cuts] == [cut for cut in cuts for _ in ("tokens", "targets")]


def test_the_verb_shows_trials_and_uses_the_measured_speed(gptwright: Callable[..., Answer]) -> None:
    options = [f"--{name}={value}" for name, value in SMALL.items()]
    document = json.loads(gptwright("plan", *options, "--max_iters=10", "--measure", "--json").out)
    assert document["trials"]
    assert "measured just now" in document["throughput"]["basis"]
    assert document["batch"]["tokens_per_step"] == 24 * 32
    assert "micro-batch" in gptwright("plan", *options, "--measure").out

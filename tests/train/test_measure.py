"""`plan --measure`: a few real steps on the device here."""

import json
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest

from gptwright.config.schema import TrainConfig
from gptwright.errors import DeviceError
from gptwright.facts import stated
from gptwright.hardware.limits import MemoryLimit
from gptwright.plan.plan import make_plan
from gptwright.train import measure as measuring
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


def test_the_verb_shows_trials_and_uses_the_measured_speed(gptwright: Callable[..., Answer]) -> None:
    options = [f"--{name}={value}" for name, value in SMALL.items()]
    document = json.loads(gptwright("plan", *options, "--max_iters=10", "--measure", "--json").out)
    assert document["trials"]
    assert "measured just now" in document["throughput"]["basis"]
    assert document["batch"]["tokens_per_step"] == 24 * 32
    assert "micro-batch" in gptwright("plan", *options, "--measure").out

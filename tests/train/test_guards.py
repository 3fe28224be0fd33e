"""Planted NaN batches, gradient bombs, an overflow: skipped, rolled back or stopped, as the policy says."""

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from gptwright.config.load import load_config
from gptwright.errors import ConfigError, RunFailedError
from gptwright.optim.optimizers import Optimizer
from gptwright.record.metrics import MetricsFile, read_metrics
from gptwright.record.run import RunFolder
from gptwright.train import update
from gptwright.train.guards import NORM_WINDOW, Refused, UpdateGuard, Verdict, decide, step_unless
from gptwright.train.hook import Hook
from gptwright.train.loop import Outcome, Trainer
from gptwright.train.run import prepare_new, prepare_resume, train_prepared
from gptwright.train.session import Session
from gptwright.train.state import TrainState
from tests.train.conftest import Train, Watcher, assert_same_weights, story, weights

Plant = Callable[[int, Tensor], Tensor]


class Planted:
    """A model whose loss is tampered with for some batches of the data's order, wherever they come up.

    Batches are known by their tokens, so that the fault lies in the data, as in life: it comes again whenever
    the batch does, and never where the batch is passed over.
    """

    def __init__(self, session: Session, faults: Mapping[int, Plant]) -> None:
        self.session = session
        batches = {number: torch.from_numpy(session.sampler.batch(number)[0]) for number in faults}
        self.faults = [(batches[number], number, plant) for number, plant in faults.items()]

    def __call__(self, tokens_BT: Tensor, targets_BT: Tensor, *, per_window: bool = False) -> Tensor:
        loss = self.session.model(tokens_BT, targets_BT, per_window=per_window)
        if not per_window:
            for batch, number, plant in self.faults:
                if any(torch.equal(tokens_BT[0], row) for row in batch):
                    loss = plant(number, loss)
        assert isinstance(loss, Tensor)
        return loss


def nan(_: int, loss: Tensor) -> Tensor:
    return loss * math.nan


def bomb(_: int, loss: Tensor) -> Tensor:
    """The loss is what it was, its gradient ten thousand times as large."""
    return loss.detach() + (loss - loss.detach()) * 1e4


def overflowing(_: int, loss: Tensor) -> Tensor:
    """A finite loss with an infinite gradient, the slope of a root at 0: an overflow in the backward pass."""
    return loss.detach() + (loss - loss.detach()).sqrt()


def planted(
    out: Path, options: dict[str, str], faults: Mapping[int, Plant], stop_at: int | None = None
) -> Outcome:
    """Trains, or goes on with what is there."""
    run = RunFolder(out)
    if run.config_path.exists():
        prepared = prepare_resume(run, run.load_config())
    else:
        prepared = prepare_new(load_config([], options | {"out_dir": str(out)}))
    object.__setattr__(prepared.session.replica, "forward", Planted(prepared.session, faults))
    return train_prepared(prepared, Watcher(stop_at))


def guards(out: Path) -> list[dict[str, Any]]:
    return [record for record in read_metrics(out / "metrics.jsonl") if record["kind"] == "guard"]


@pytest.fixture
def options(tiny: dict[str, str]) -> dict[str, str]:
    # Accumulation 1, so that a batch is known by its first row; no evaluation in the way.
    return tiny | {"gradient_accumulation_steps": "1", "checkpoint_interval": "4", "eval_interval": "100"}


@pytest.mark.parametrize("plant", [nan, overflowing])
@pytest.mark.parametrize("log_interval", ["1", "5"])
def test_a_bad_batch_is_skipped_and_leaves_no_trace(
    tmp_path: Path, options: dict[str, str], plant: Plant, log_interval: str
) -> None:
    out = tmp_path / "run"
    outcome = planted(out, options | {"log_interval": log_interval}, {6: plant, 13: plant})
    assert (outcome.ending, outcome.state.step) == ("finished", 24)
    assert [(g["what"], g["step"]) for g in guards(out)] == [("skipped", 6), ("skipped", 13)]
    assert all(bool(t.isfinite().all()) for t in weights(out).values())
    payload = json.loads((out / "checkpoints" / "step-00000024" / "state.json").read_bytes())
    assert payload["checkpoint"]["optimizer_step"] == 22
    losses = [r["loss_mean"] for r in read_metrics(out / "metrics.jsonl") if r["kind"] == "train"]
    assert (losses.count("nan") == 2) == (plant is nan and log_interval == "1")


def test_a_skipped_update_is_as_if_the_optimizer_had_not_been_called(options: dict[str, str]) -> None:
    for fused in (True, False):
        parameter = torch.nn.Parameter(torch.ones(3))
        groups = [{"params": [parameter], "kind": "adamw", "lr": 0.1, "lr_scale": 1.0, "weight_decay": 0.01}]
        optimizer = Optimizer([group | {"betas": (0.9, 0.999), "eps": 1e-8} for group in groups], fused=fused)
        for refused in (False, True, False):
            parameter.grad = torch.full((3,), math.nan if refused else 1.0)
            step_unless(optimizer, torch.tensor(refused))
        other = torch.nn.Parameter(torch.ones(3))
        plain = torch.optim.AdamW([other], lr=0.1, fused=fused)
        for _ in range(2):
            other.grad = torch.ones(3)
            plain.step()
        assert torch.equal(parameter, other)
        assert float(optimizer.state[parameter]["step"]) == 2


def test_beyond_the_budget_the_run_goes_back_and_past_the_stretch(
    tmp_path: Path, options: dict[str, str]
) -> None:
    out = tmp_path / "run"
    faults = dict.fromkeys(range(9, 13), nan)
    outcome = planted(out, options | {"skip_budget": "2"}, faults)
    assert outcome.ending == "finished"
    assert outcome.state.passed_over == [(8, 4)]
    assert (outcome.state.rollbacks, outcome.state.rate_scale) == (1, 1.0)
    # Batch 12 is bad too and was not yet seen: it is skipped, at step 8 now.
    assert [(g["what"], g["step"]) for g in guards(out)] == [("rollback", 8), ("skipped", 8)]
    steps = [r["step"] for r in read_metrics(out / "metrics.jsonl") if r["kind"] == "train"]
    assert steps == list(range(24))
    assert (out / "log.txt").read_text("utf-8").count("iter 8:") == 1


def test_a_second_rollback_halves_the_rate_and_a_third_is_a_diagnosis(
    tmp_path: Path, options: dict[str, str]
) -> None:
    out = tmp_path / "run"
    faults = dict.fromkeys(range(9, 100), nan)
    policy = {"nonfinite": "rollback", "rollback_budget": "2"}
    with pytest.raises(
        RunFailedError, match=r"the loss is nan at step 8, after 2 rollbacks[\s\S]*--checkpoint=step-00000008"
    ):
        planted(out, options | policy, faults)
    told = guards(out)
    assert [g["rate_scale"] for g in told] == [1.0, 0.5]
    last = read_metrics(out / "metrics.jsonl")[-1]
    assert (last["kind"], last["state"], last["reason"]) == ("end", "failed", "the loss is nan")
    assert RunFolder(out).checkpoint_names()[-1] == "step-00000008"


def test_stop_means_at_once(tmp_path: Path, options: dict[str, str]) -> None:
    out = tmp_path / "run"
    with pytest.raises(RunFailedError, match=r"the loss is nan at step 6\n[\s\S]*step-00000004"):
        planted(out, options | {"nonfinite": "stop"}, {6: nan})
    assert guards(out) == []


def test_without_a_checkpoint_to_go_back_to_the_run_stops(tmp_path: Path, options: dict[str, str]) -> None:
    with pytest.raises(RunFailedError, match=r"no checkpoint to go back to; start again: --learning_rate="):
        planted(tmp_path / "run", options | {"nonfinite": "rollback"}, {2: nan})


@pytest.mark.parametrize("stop_at", [8, 9, 10, 14])
def test_a_resume_after_a_rollback_is_bit_exact(
    tmp_path: Path, options: dict[str, str], stop_at: int
) -> None:
    faults: dict[int, Plant] = {9: nan, 10: nan, 15: nan}
    policy = options | {"skip_budget": "1", "dropout": "0.1", "spike_z": "6"}
    planted(tmp_path / "whole", policy, faults)
    outcome = planted(tmp_path / "stopped", policy, faults, stop_at)
    assert outcome.ending == "stopped"
    assert planted(tmp_path / "stopped", policy, faults).ending == "finished"
    assert_same_weights(tmp_path / "whole", tmp_path / "stopped")
    assert story(tmp_path / "stopped") == story(tmp_path / "whole")


def test_a_gradient_bomb_is_a_spike_and_ordinary_noise_is_none(
    tmp_path: Path, options: dict[str, str]
) -> None:
    out = tmp_path / "run"
    long = options | {"max_iters": "200", "lr_decay_iters": "200", "checkpoint_interval": "50"}
    outcome = planted(out, long | {"spike_z": "6"}, {150: bomb})
    assert outcome.ending == "finished"
    told = guards(out)
    assert [(g["what"], g["step"]) for g in told] == [("skipped", 150)]
    assert "far above the recent ones" in told[0]["text"]


def test_a_lasting_rise_is_no_spike_for_long() -> None:
    state = TrainState()
    guard = UpdateGuard(spike_z=5.0, scaled=False, device=torch.device("cpu"), state=state)
    generator = torch.Generator().manual_seed(1)
    one = torch.tensor(1.0)
    for step in range(2 * NORM_WINDOW):
        level = 1.0 if step < NORM_WINDOW else 3.0
        noise = torch.randn((), generator=generator) * 0.1
        guard.judge(step, one, level * noise.exp())
    refused = [r.step for r in guard.settle()]
    assert refused
    assert refused[0] == NORM_WINDOW
    assert refused[-1] < NORM_WINDOW + 20


def test_a_float16_overflow_is_the_scalers_business_and_its_collapse_is_not(
    tmp_path: Path, options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real scaler at work; the arithmetic is float32's, as this CPU trains no float16."""
    out = tmp_path / "run"
    run_options = options | {"rollback_budget": "0"}
    prepared = prepare_new(load_config([], run_options | {"out_dir": str(out)}))
    session = prepared.session
    object.__setattr__(session, "scaler", torch.amp.GradScaler("cpu", init_scale=8.0))
    object.__setattr__(session.replica, "forward", Planted(session, dict.fromkeys(range(5, 24), overflowing)))
    with pytest.raises(RunFailedError, match=r"the float16 scale is 0.5 at step 8"):
        train_prepared(prepared, Watcher())
    assert [(g["what"], g["step"]) for g in guards(out)] == [("scaler-collapse", 8)]


@pytest.mark.parametrize(
    ("policy", "skipped_before", "rollbacks", "verdict", "action"),
    [
        ("skip", 0, 0, Verdict.LOSS, "skip"),
        ("skip", 10, 0, Verdict.LOSS, "rollback"),
        ("skip", 10, 3, Verdict.GRADIENT, "stop"),
        ("rollback", 0, 0, Verdict.GRADIENT, "rollback"),
        ("stop", 0, 0, Verdict.LOSS, "stop"),
        ("stop", 0, 0, Verdict.SPIKE, "skip"),
        ("stop", 10, 0, Verdict.SPIKE, "rollback"),
    ],
)
def test_the_policy(policy: str, skipped_before: int, rollbacks: int, verdict: Verdict, action: str) -> None:
    config = load_config([], {"nonfinite": policy}).config
    state = TrainState(skipped=list(range(4000, 4000 + skipped_before)), rollbacks=rollbacks)
    assert decide(config, state, Refused(4500, verdict, math.nan, 1.0)) == action
    old = TrainState(skipped=list(range(skipped_before)), rollbacks=0)
    decide(config, old, Refused(4500, verdict, math.nan, 1.0))
    assert old.skipped == [4500]


def test_a_loss_that_is_stuck_is_said_once(tmp_path: Path, options: dict[str, str], train: Train) -> None:
    stuck = options | {"stuck_steps": "10", "max_iters": "30", "learning_rate": "1e-12", "min_lr": "0"}
    train(stuck, tmp_path / "stuck")
    told = guards(tmp_path / "stuck")
    assert [(g["what"], g["step"]) for g in told] == [("stuck-loss", 14)]
    assert "entropy of token frequencies alone" in told[0]["text"]
    train(options | {"stuck_steps": "100", "max_iters": "120", "lr_decay_iters": "120"}, tmp_path / "learns")
    assert guards(tmp_path / "learns") == []


def test_a_rate_that_jumps_on_resume_is_refused_unless_asked_for(
    tmp_path: Path, tiny: dict[str, str], train: Train, resume: Train
) -> None:
    out = tmp_path / "run"
    train(tiny, out)
    longer = {"max_iters": "48", "lr_decay_iters": "48"}
    with pytest.raises(
        ConfigError,
        match=r"learning rate at step 24 was 0\.001 and would jump to [\s\S]*--allow-lr-jump[\s\S]*"
        r"--learning_rate=0\.001",
    ):
        resume(out, **longer)
    assert resume(out, stop_at=30, allow_lr_jump=True, **longer).ending == "stopped"
    assert resume(out).ending == "finished"


def test_going_on_at_the_rate_it_has_is_no_jump(
    tmp_path: Path, tiny: dict[str, str], train: Train, resume: Train
) -> None:
    train(tiny, tmp_path / "run")
    assert resume(tmp_path / "run", max_iters="30").ending == "finished"


class NoReading(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Fails where the host asks a tensor for its value, which on a GPU makes it wait for the device."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        assert func is not torch.ops.aten._local_scalar_dense.default, "a value was read"
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("grad_clip", ["1.0", "0"])
def test_no_update_makes_the_host_wait_for_the_device(
    tmp_path: Path, tiny: dict[str, str], grad_clip: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a GPU, where no norm is at hand."""
    monkeypatch.setattr(update, "_is_at_hand", lambda _: False)
    options = tiny | {"spike_z": "5", "grad_clip": grad_clip, "out_dir": str(tmp_path / "run")}
    prepared = prepare_new(load_config([], options))
    metrics = MetricsFile(prepared.run.metrics_path, keep_bytes=0)
    trainer = Trainer(
        prepared.session,
        prepared.run,
        state=TrainState(),
        metrics=metrics,
        listener=Watcher(),
        hook=Hook(None, run=prepared.run.path),
    )
    no_reading = NoReading()  # type: ignore[no-untyped-call]
    with trainer.batches:
        for step in range(NORM_WINDOW + 2):
            batch = trainer.batches.batch(step)
            with no_reading, mock.patch.object(trainer.batches, "batch", return_value=batch):
                trainer._update(step)
        with no_reading, pytest.raises(AssertionError, match="a value was read"):
            bool(torch.ones(()) > 0)
    assert trainer.guard.settle() == []
    metrics.close()
    prepared.let_go()

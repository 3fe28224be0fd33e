"""The loop: what a step sees does not depend on how it is cut, and a stopped run goes on bit for bit."""

import itertools
import math
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from gptwright.config.load import load_config
from gptwright.errors import CheckpointError, RunError, RunFailedError
from gptwright.hardware.detect import Device
from gptwright.record.metrics import read_metrics
from gptwright.record.run import RunFolder
from gptwright.train.evaluate import Evaluator
from gptwright.train.precision import Precision
from gptwright.train.run import Prepared, prepare_resume, require_unfinished
from gptwright.train.session import build_session
from gptwright.train.state import dropout_seed
from tests.conftest import TINY
from tests.train.conftest import Train, assert_same_weights, story, train_new


def losses(out: Path) -> np.ndarray:
    return np.array([r["loss"] for r in read_metrics(out / "metrics.jsonl") if r["kind"] == "train"])


@pytest.mark.parametrize("sampling", ["random", "epoch"])
def test_cutting_a_step_differently_changes_nothing(
    tmp_path: Path, tiny: dict[str, str], train: Train, sampling: str
) -> None:
    curves = []
    for micro_batch, accumulation in ((1, 8), (2, 4), (8, 1)):
        out = tmp_path / f"{micro_batch}x{accumulation}"
        cut = {"batch_size": str(micro_batch), "gradient_accumulation_steps": str(accumulation)}
        rate = {"learning_rate": "1e-3", "min_lr": "1e-4"}
        train(tiny | cut | rate | {"max_iters": "20", "sampling": sampling}, out)
        curves.append(losses(out))
    assert len(curves[0]) == 20
    assert curves[0][-1] < curves[0][0] - 0.1
    np.testing.assert_allclose(curves[1], curves[0], rtol=0, atol=1e-6)
    np.testing.assert_allclose(curves[2], curves[0], rtol=0, atol=1e-6)


STOPPED = {"dropout": "0.2", "log_interval": "3"}


@pytest.fixture(scope="module")
def undisturbed(dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run that nothing happened to, by the way its windows are drawn."""
    folder = tmp_path_factory.mktemp("undisturbed")
    for sampling in ("random", "epoch"):
        options = TINY | STOPPED | {"dataset": str(dataset), "sampling": sampling}
        train_new(options, folder / sampling)
    return {sampling: folder / sampling for sampling in ("random", "epoch")}


@pytest.mark.parametrize("stop_at", [1, 2, 5, 7, 8, 9, 16, 23])
def test_resuming_after_a_stop_at_any_step_is_bit_exact(
    tmp_path: Path,
    tiny: dict[str, str],
    undisturbed: dict[str, Path],
    train: Train,
    resume: Train,
    stop_at: int,
) -> None:
    sampling = "epoch" if stop_at % 2 else "random"
    outcome = train(tiny | STOPPED | {"sampling": sampling}, tmp_path / "stopped", stop_at)
    assert (outcome.ending, outcome.state.step) == ("stopped", stop_at)
    assert resume(tmp_path / "stopped").ending == "finished"
    assert_same_weights(undisturbed[sampling], tmp_path / "stopped")
    assert story(tmp_path / "stopped") == story(undisturbed[sampling])


@pytest.mark.parametrize(("batch", "step"), [(1, 0), (5, 8), (13, 24)])
def test_an_evaluation_is_not_waited_for_and_made_after_a_resume(
    tmp_path: Path,
    tiny: dict[str, str],
    undisturbed: dict[str, Path],
    train: Train,
    resume: Train,
    monkeypatch: pytest.MonkeyPatch,
    batch: int,
    step: int,
) -> None:
    losses_of, made = Evaluator._losses_of, itertools.count(1)

    def stopped_at_one(self: Evaluator, *given: Any) -> Tensor:
        if next(made) == batch:
            os.kill(os.getpid(), signal.SIGTERM)
        return losses_of(self, *given)

    monkeypatch.setattr(Evaluator, "_losses_of", stopped_at_one)
    outcome = train(tiny | STOPPED | {"sampling": "epoch"}, tmp_path / "stopped")
    assert (outcome.ending, outcome.state.step) == ("stopped", step)
    assert next(made) == batch + 1
    require_unfinished(prepared(tmp_path / "stopped"))
    assert resume(tmp_path / "stopped").ending == "finished"
    assert_same_weights(undisturbed["epoch"], tmp_path / "stopped")
    assert story(tmp_path / "stopped") == story(undisturbed["epoch"])
    with pytest.raises(RunError, match="has finished"):
        require_unfinished(prepared(tmp_path / "stopped"))


def prepared(out: Path) -> Prepared:
    """A run as `resume` finds it; its folder is let go."""
    run = RunFolder.existing(out)
    found = prepare_resume(run, run.load_config({}))
    found.let_go()
    return found


def test_stopping_at_every_step_in_turn_is_bit_exact(
    tmp_path: Path, tiny: dict[str, str], train: Train, resume: Train
) -> None:
    options = tiny | {"dropout": "0.1", "max_iters": "12"}
    train(options, tmp_path / "whole")
    train(options, tmp_path / "steps", 1)
    for step in range(2, 13):
        resume(tmp_path / "steps", step)
    # The last stop came before the last evaluation.
    assert resume(tmp_path / "steps").ending == "finished"
    assert_same_weights(tmp_path / "whole", tmp_path / "steps")
    assert story(tmp_path / "steps") == story(tmp_path / "whole")


def test_muon_and_the_modern_parts_resume_bit_for_bit(
    tmp_path: Path, tiny: dict[str, str], train: Train, resume: Train
) -> None:
    rates = {"learning_rate": "1e-2", "muon_learning_rate": "0.02", "muon_warmup_iters": "20"}
    options = tiny | rates | {"arch": "modern", "optimizer": "muon", "tie_weights": "False", "dropout": "0.1"}
    train(options, tmp_path / "whole")
    train(options, tmp_path / "stopped", 7)
    assert resume(tmp_path / "stopped").ending == "finished"
    assert_same_weights(tmp_path / "whole", tmp_path / "stopped")
    assert story(tmp_path / "stopped") == story(tmp_path / "whole")
    curve = losses(tmp_path / "whole")
    assert curve[-1] < curve[0] - 0.5
    with pytest.raises(CheckpointError, match=r"optimizer was muon and is adamw"):
        resume(tmp_path / "stopped", optimizer="adamw", max_iters="40")


def test_a_run_records_what_nanogpt_prints_and_what_its_noise_is(
    tmp_path: Path, tiny: dict[str, str], train: Train
) -> None:
    out = tmp_path / "run"
    train(tiny | {"log_interval": "3"}, out)
    records = read_metrics(out / "metrics.jsonl")
    assert [r["kind"] for r in records[:3]] == ["start", "eval", "train"]
    assert [r["step"] for r in records if r["kind"] == "train"] == list(range(0, 24, 3))
    assert [r["step"] for r in records if r["kind"] == "eval"] == [0, 8, 16, 24]
    assert records[-1]["state"] == "finished"
    lines = (out / "log.txt").read_text("utf-8").splitlines()
    assert lines[0] == "tokens per iteration will be: 128"
    assert sum(line.startswith("step ") for line in lines) == 4
    for record in (r for r in records if r["kind"] == "eval"):
        windows = np.load(out / "evaluations" / f"val-{record['step']:08d}.npy", allow_pickle=False)
        assert record["val_windows"] == len(windows) == 8
        assert record["val_loss"] == pytest.approx(windows.mean(), rel=1e-6)
        assert record["val_loss_standard_error"] == pytest.approx(
            windows.std(ddof=1) / math.sqrt(8), rel=1e-5
        )


def test_the_mean_loss_of_a_line_covers_all_its_steps(
    tmp_path: Path, tiny: dict[str, str], train: Train
) -> None:
    train(tiny, tmp_path / "each")
    train(tiny | {"log_interval": "4"}, tmp_path / "fourth")
    each = losses(tmp_path / "each")
    fourth = [r for r in read_metrics(tmp_path / "fourth" / "metrics.jsonl") if r["kind"] == "train"]
    assert [r["loss"] for r in fourth] == each[::4].tolist()
    assert fourth[2]["loss_mean"] == pytest.approx(each[5:9].mean(), rel=1e-12)


def test_a_loss_that_is_no_number_stops_the_run_and_keeps_the_last_checkpoint(
    tmp_path: Path, tiny: dict[str, str], train: Train
) -> None:
    out = tmp_path / "run"
    options = tiny | {
        "learning_rate": "1e30",
        "grad_clip": "0",
        "warmup_iters": "0",
        "checkpoint_interval": "1",
    }
    with pytest.raises(RunFailedError, match=r"at step \d+, after \d rollbacks?[\s\S]*gptwright resume"):
        train(options, out)
    last = read_metrics(out / "metrics.jsonl")[-1]
    assert (last["kind"], last["state"]) == ("end", "failed")
    assert last["reason"].startswith(("the loss is", "the gradient norm is"))
    assert RunFolder(out).checkpoint_names()


def test_a_run_whose_weights_give_no_number_at_the_end_has_failed(
    tmp_path: Path, tiny: dict[str, str], train: Train
) -> None:
    """The updates that the skip budget allows are fewer than would make it go back."""
    out = tmp_path / "run"
    options = tiny | {"learning_rate": "1e30", "grad_clip": "0", "warmup_iters": "0", "max_iters": "6"}
    with pytest.raises(RunFailedError, match=r"the validation loss is nan at step 6[\s\S]*no model to use"):
        train(options, out)
    last = read_metrics(out / "metrics.jsonl")[-1]
    assert (last["kind"], last["state"]) == ("end", "failed")
    assert RunFolder(out).pointed("last") != "step-00000006"


def test_it_goes_on_from_the_last_weights_that_were_evaluated(
    tmp_path: Path, tiny: dict[str, str], train: Train, resume: Train
) -> None:
    """A checkpoint from before the first refused update may have the weights that made it refuse."""
    out = tmp_path / "run"
    train(tiny | {"max_iters": "4", "eval_interval": "1"}, out)
    with pytest.raises(RunFailedError, match=r"resume .* --checkpoint=step-00000004 --learning_rate"):
        resume(out, allow_lr_jump=True, max_iters="9", learning_rate="1e30", decay_lr="False", grad_clip="0")


def test_the_best_checkpoint_outlives_newer_ones(
    tmp_path: Path, tiny: dict[str, str], train: Train, resume: Train
) -> None:
    out = tmp_path / "run"
    train(tiny | {"max_iters": "8"}, out)
    resume(out, allow_lr_jump=True, max_iters="32", learning_rate="5", decay_lr="False")
    run = RunFolder(out)
    assert run.pointed("best") == "step-00000008"
    assert run.pointed("last") == "step-00000032"
    assert run.checkpoint_names() == ["step-00000008", "step-00000024", "step-00000032"]


def test_only_evaluating_makes_no_step(tmp_path: Path, tiny: dict[str, str], train: Train) -> None:
    outcome = train(tiny | {"eval_only": "True"}, tmp_path / "run")
    assert (outcome.ending, outcome.state.step) == ("finished", 0)
    kinds = [r["kind"] for r in read_metrics(tmp_path / "run" / "metrics.jsonl")]
    assert kinds == ["start", "eval", "end"]
    assert RunFolder(tmp_path / "run").checkpoint_names() == []


def test_bfloat16_learns_as_float32_does(tiny: dict[str, str]) -> None:
    """The arithmetic of a mixed-precision step on this CPU, whatever its hardware is fast at."""
    ends = {}
    device = Device(type="cpu", index=None, name="x", memory_bytes=1, native_dtypes=(), detail="")
    for dtype in ("float32", "bfloat16"):
        session = build_session(load_config([], tiny))
        precision = Precision(device, dtype)
        generator = torch.Generator().manual_seed(0)
        tokens = torch.randint(0, session.vocab_size, (8, 16), generator=generator)
        for _ in range(10):
            with precision.autocast():
                loss = session.forward(tokens, tokens.roll(-1, 1))
            loss.backward()  # type: ignore[no-untyped-call]
            session.optimizer.step()
            session.optimizer.zero_grad()
        ends[dtype] = loss.item()
    assert ends["bfloat16"] == pytest.approx(ends["float32"], abs=0.1)
    assert ends["bfloat16"] != ends["float32"]


@pytest.mark.slow
@pytest.mark.usefixtures("captured")
@pytest.mark.skipif(shutil.which("g++") is None, reason="compilation on a CPU needs a C++ compiler")
def test_a_compiled_model_makes_the_same_steps(tmp_path: Path, tiny: dict[str, str], train: Train) -> None:
    options = tiny | {"n_layer": "1", "max_iters": "4", "learning_rate": "1e-3", "min_lr": "1e-4"}
    train(options, tmp_path / "eager")
    train(options | {"compile": "True"}, tmp_path / "compiled")
    np.testing.assert_allclose(losses(tmp_path / "compiled"), losses(tmp_path / "eager"), rtol=0, atol=1e-5)
    assert RunFolder(tmp_path / "compiled").checkpoint_names() == ["step-00000004"]


def test_every_step_has_its_own_dropout() -> None:
    seeds = {dropout_seed(seed, step) for seed in range(50) for step in range(200)}
    assert len(seeds) == 50 * 200
    assert all(0 <= seed < 2**63 for seed in seeds)

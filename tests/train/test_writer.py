"""Checkpoints beside the training: in order, true to their moment, and never silent about a failure."""

import threading
from pathlib import Path
from unittest import mock

import pytest
import torch
from safetensors.torch import load_file

from gptwright.config.load import load_config
from gptwright.errors import DiskFullError
from gptwright.record.metrics import read_metrics
from gptwright.record.run import RunFolder
from gptwright.train import writer
from gptwright.train.checkpoint import write_checkpoint
from gptwright.train.retention import is_for_good, outlived, to_stay
from gptwright.train.run import prepare_new, train_prepared
from gptwright.train.seal import damage_of
from gptwright.train.state import TrainState
from tests.train.conftest import Train, Watcher, assert_same_weights, story, weights


def test_a_run_with_a_thread_is_the_run_without_one(
    tmp_path: Path, tiny: dict[str, str], train: Train, resume: Train
) -> None:
    options = tiny | {"checkpoint_interval": "1", "dropout": "0.1"}
    train(options, tmp_path / "plain")
    train(options | {"async_checkpoints": "True"}, tmp_path / "beside", 11)
    assert resume(tmp_path / "beside").ending == "finished"
    assert_same_weights(tmp_path / "plain", tmp_path / "beside")
    assert story(tmp_path / "plain") == story(tmp_path / "beside")


def test_a_slow_disk_gets_the_weights_of_the_moment_and_makes_nobody_wait(
    tmp_path: Path, tiny: dict[str, str], train: Train
) -> None:
    options = tiny | {"max_iters": "12", "checkpoint_interval": "4", "eval_interval": "100"}
    out = tmp_path / "slow"
    writing, enough = threading.Event(), threading.Event()
    steps_meanwhile: list[int] = []

    def slowly(run: RunFolder, snapshot: object) -> str:
        writing.set()
        assert enough.wait(60)
        name = write_checkpoint(run, snapshot)  # type: ignore[arg-type]
        writing.clear()
        return name

    class Counter(Watcher):
        def stepped(self, step: int) -> None:
            # The write begins after step 3, whenever its thread gets a core.
            if step == 4:
                assert writing.wait(60)
            if writing.is_set():
                steps_meanwhile.append(step)
            if len(steps_meanwhile) == 4:
                enough.set()

    prepared = prepare_new(
        load_config([], options | {"out_dir": str(out), "async_checkpoints": "True", "keep_checkpoints": "9"})
    )
    with mock.patch.object(writer, "write_checkpoint", slowly):
        train_prepared(prepared, Counter())
    assert steps_meanwhile[:4] == [4, 5, 6, 7]
    names = RunFolder(out).checkpoint_names()
    assert names == ["step-00000004", "step-00000008", "step-00000012"]
    assert [damage_of(out / "checkpoints" / name) for name in names] == [None] * 3
    train(options | {"max_iters": "4", "lr_decay_iters": "24"}, tmp_path / "four")
    then = load_file(out / "checkpoints" / names[0] / "model.safetensors")
    wanted = weights(tmp_path / "four")
    assert all(torch.equal(tensor, wanted[name]) for name, tensor in then.items())


@pytest.mark.parametrize("max_iters", ["12", "4"])
def test_a_write_that_fails_in_the_thread_ends_the_run_with_its_error(
    tmp_path: Path, tiny: dict[str, str], max_iters: str
) -> None:
    """Found at a later step, and found at the end."""
    options = tiny | {"max_iters": max_iters, "checkpoint_interval": "4", "async_checkpoints": "True"}
    prepared = prepare_new(load_config([], options | {"out_dir": str(tmp_path / "run")}))
    full = mock.Mock(side_effect=DiskFullError("the disk is full"))
    with mock.patch.object(writer, "write_checkpoint", full), pytest.raises(DiskFullError, match="is full"):
        train_prepared(prepared, Watcher())
    assert full.call_count == 1


NAMES = [f"step-{step:08d}" for step in (10, 20, 30, 40, 50, 60)]


@pytest.mark.parametrize(
    ("newest", "best", "good", "for_good", "extra", "gone"),
    [
        (2, None, None, set(), [], [10, 20, 30, 40]),
        (3, "step-00000020", None, set(), [], [10, 30]),
        (2, "step-00000060", "step-00000030", set(), [], [10, 20, 40]),
        (2, None, None, {"step-00000010", "step-00000040"}, [], [20, 30]),
        (2, None, None, set(), [50], [10, 20, 30, 50]),
        (2, None, None, set(), [60], [10, 20, 30]),
        (9, None, None, set(), [], []),
    ],
)
def test_what_is_kept(
    newest: int, best: str | None, good: str | None, for_good: set[str], extra: list[int], gone: list[int]
) -> None:
    found = outlived(
        NAMES,
        planned=[name for name in NAMES if int(name[5:]) not in extra],
        newest=newest,
        best=best,
        good=good,
        for_good=lambda name: name in for_good,
    )
    assert [int(name[5:]) for name in found] == gone


def test_one_in_so_many_hours_stays_whatever_the_clock_says() -> None:
    state = TrainState()
    stays = []
    for minutes in range(0, 300, 25):
        state.elapsed_seconds = minutes * 60.0
        stays.append(to_stay(state, 1.0))
    assert [minutes for minutes, stay in zip(range(0, 300, 25), stays, strict=True) if stay] == [75, 150, 225]
    assert not to_stay(TrainState(elapsed_seconds=1e9), 0.0)


def test_a_checkpoint_kept_for_good_outlives_newer_ones(
    tmp_path: Path, tiny: dict[str, str], train: Train
) -> None:
    # A millionth of an hour: each checkpoint is one to keep.
    train(tiny | {"checkpoint_interval": "4", "keep_hours": "1e-6"}, tmp_path / "run")
    run = RunFolder(tmp_path / "run")
    assert len(run.checkpoint_names()) == 6
    assert all(is_for_good(run, name) for name in run.checkpoint_names())


def test_a_crash_while_a_checkpoint_is_replaced_leaves_the_old_one(
    tmp_path: Path, tiny: dict[str, str], train: Train, resume: Train
) -> None:
    train(tiny, tmp_path / "run", 8)
    run = RunFolder(tmp_path / "run")
    (run.checkpoints / "step-00000008").rename(run.checkpoints / ".step-00000008.replaced")
    assert run.checkpoint_names() == []
    assert resume(tmp_path / "run").ending == "finished"
    steps = [r["step"] for r in read_metrics(run.metrics_path) if r["kind"] == "resume"]
    assert steps == [8]

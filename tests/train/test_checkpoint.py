"""A checkpoint is whole and verified, or refused with the one to take instead."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from gptwright.config.load import load_config
from gptwright.errors import CheckpointError, DiskFullError, RunError
from gptwright.record.lock import LOCK_NAME
from gptwright.record.metrics import read_metrics
from gptwright.record.run import RunFolder
from gptwright.train.run import prepare_new, prepare_resume, require_unfinished, train_prepared
from gptwright.train.seal import verified_payload
from tests.conftest import TINY
from tests.train.conftest import Train, Watcher, assert_same_weights, story, train_new


@pytest.fixture(scope="module")
def whole(dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run that nothing happened to; tests look at it, and damage copies."""
    out = tmp_path_factory.mktemp("whole") / "run"
    train_new(TINY | {"dataset": str(dataset)}, out)
    return out


@pytest.fixture(scope="module")
def stopped(dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, stopped after five steps."""
    out = tmp_path_factory.mktemp("stopped") / "run"
    train_new(TINY | {"dataset": str(dataset)}, out, 5)
    return out


@pytest.fixture
def finished(whole: Path, tmp_path: Path) -> Path:
    """A copy of the finished run."""
    return Path(shutil.copytree(whole, tmp_path / "run"))


@pytest.fixture
def unfinished(stopped: Path, tmp_path: Path) -> Path:
    """A copy of the stopped run."""
    return Path(shutil.copytree(stopped, tmp_path / "run"))


def contents(out: Path) -> dict[Path, bytes]:
    """All files of a run but the lock's, which says who looked last."""
    return {path: path.read_bytes() for path in out.rglob("*") if path.is_file() and path.name != LOCK_NAME}


def flip_a_bit(path: Path, position: float) -> None:
    content = bytearray(path.read_bytes())
    content[int(position * (len(content) - 1))] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("file", ["model.safetensors", "optimizer.safetensors", "state.json"])
@pytest.mark.parametrize("position", [0.0, 0.3, 0.7, 1.0])
def test_one_flipped_bit_is_found_and_the_checkpoint_before_offered(
    finished: Path, resume: Train, file: str, position: float
) -> None:
    out = finished
    folder = out / "checkpoints" / "step-00000024"
    flip_a_bit(folder / file, position)
    before = sorted(path.name for path in (out / "checkpoints").iterdir())
    with pytest.raises(CheckpointError) as caught:
        resume(out, checkpoint="step-00000024")
    assert f"checkpoint {folder} is damaged: {file}" in str(caught.value)
    assert f"gptwright resume {out} --checkpoint=step-00000016" in str(caught.value)
    assert sorted(path.name for path in (out / "checkpoints").iterdir()) == before


@pytest.mark.parametrize("file", ["model.safetensors", "optimizer.safetensors", "state.json"])
def test_a_damaged_checkpoint_is_passed_over_with_a_warning(
    whole: Path, finished: Path, resume: Train, file: str
) -> None:
    out = finished
    flip_a_bit(out / "checkpoints" / "step-00000024" / file, 0.5)
    assert resume(out).ending == "finished"
    assert_same_weights(whole, out)
    assert story(out) == story(whole)
    warned = [r for r in read_metrics(out / "metrics.jsonl") if r["kind"] == "guard"]
    assert [(r["what"], r["step"]) for r in warned] == [("fallback", 16)]
    assert f"checkpoint step-00000024 cannot be used: {file}" in warned[0]["text"]


def test_the_offered_checkpoint_goes_on_to_the_same_end(whole: Path, finished: Path, resume: Train) -> None:
    flip_a_bit(finished / "checkpoints" / "step-00000024" / "model.safetensors", 0.5)
    assert resume(finished, checkpoint="step-00000016").ending == "finished"
    assert_same_weights(whole, finished)
    assert story(finished) == story(whole)


def test_with_no_whole_checkpoint_left_that_is_said(finished: Path, resume: Train) -> None:
    for folder in (finished / "checkpoints").glob("step-*"):
        (folder / "model.safetensors").unlink()
    with pytest.raises(
        CheckpointError, match=r"model.safetensors is missing[\s\S]*no earlier checkpoint is whole"
    ):
        resume(finished)


def test_a_changed_dataset_is_refused(
    tmp_path: Path, tiny: dict[str, str], dataset: Path, train: Train, resume: Train
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(dataset, copy)
    train(tiny | {"dataset": str(copy)}, tmp_path / "run", 5)
    ids = np.fromfile(copy / "train.bin", dtype="<u2")
    ids[1000], ids[1001] = ids[1001], ids[1000] + 1 - ids[1000]
    ids.tofile(copy / "train.bin")
    with pytest.raises(CheckpointError, match="the dataset has changed since"):
        resume(tmp_path / "run")


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("n_layer", "3", "n_layer was 2 and is 3"),
        ("block_size", "8", "block_size was 16 and is 8"),
        ("seed", "1", "seed was 1337 and is 1"),
        ("sampling", "epoch", "sampling was random and is epoch"),
        ("batch_size", "8", "sequences_per_step was 8 and is 16"),
    ],
)
def test_what_fixes_shapes_or_data_order_cannot_change(
    unfinished: Path, resume: Train, name: str, value: str, said: str
) -> None:
    with pytest.raises(CheckpointError, match=said):
        resume(unfinished, **{name: value})


def test_other_settings_can_change_and_are_recorded(unfinished: Path, resume: Train) -> None:
    out = unfinished
    outcome = resume(out, batch_size="2", gradient_accumulation_steps="4", max_iters="30")
    assert outcome.state.step == 30
    assert RunFolder(out).load_config().config.max_iters == 30
    assert [r["step"] for r in read_metrics(out / "metrics.jsonl") if r["kind"] == "resume"] == [5]


def test_a_finished_run_says_so_and_stays_as_it_is(finished: Path) -> None:
    out = finished
    before = (out / "metrics.jsonl").read_bytes()
    run = RunFolder.existing(out)
    with pytest.raises(RunError, match=r"has finished: it is at step 24[\s\S]*--max_iters=48"):
        require_unfinished(prepare_resume(run, run.load_config()))
    assert (out / "metrics.jsonl").read_bytes() == before


def test_a_record_with_a_hole_is_refused_and_nothing_is_touched(
    tmp_path: Path, tiny: dict[str, str], train: Train, resume: Train
) -> None:
    out = tmp_path / "run"
    train(tiny, out, 20)
    metrics = out / "metrics.jsonl"
    metrics.write_bytes(metrics.read_bytes()[:300])
    before = contents(out)
    with pytest.raises(RunError, match=r"metrics\.jsonl has 300 bytes, and the checkpoint was written when"):
        resume(out)
    assert contents(out) == before


def test_an_unknown_checkpoint_is_answered_with_those_that_are_there(finished: Path, resume: Train) -> None:
    with pytest.raises(CheckpointError, match=r"no checkpoint 'step-9'[\s\S]*step-00000016, step-00000024"):
        resume(finished, checkpoint="step-9")


def test_a_run_killed_before_its_first_checkpoint_begins_again(
    tmp_path: Path, whole: Path, tiny: dict[str, str], resume: Train
) -> None:
    prepare_new(load_config([], tiny | {"out_dir": str(tmp_path / "killed")}))
    resume(tmp_path / "killed")
    assert_same_weights(whole, tmp_path / "killed")
    assert story(tmp_path / "killed") == story(whole)


def test_a_checkpoint_holds_no_code_and_all_of_the_state(whole: Path) -> None:
    folder = whole / "checkpoints" / "step-00000024"
    assert sorted(file.name for file in folder.iterdir()) == [
        "model.safetensors", "optimizer.safetensors", "state.json",
    ]  # fmt: skip
    payload = verified_payload(RunFolder(whole), folder.name)
    assert payload["state"]["step"] == 24
    assert payload["optimizer_step"] == 24
    assert payload["metrics_bytes"] < (whole / "metrics.jsonl").stat().st_size
    assert set(payload["files"]) == {"model.safetensors", "optimizer.safetensors"}
    json.dumps(payload)


def test_a_full_disk_stops_the_run_and_leaves_it_resumable(
    tmp_path: Path, small_disk: Path, tiny: dict[str, str], resume: Train, train: Train
) -> None:
    # 0.4 MB of weights make 1.3 MB a checkpoint: one fits on 2 MiB, and no second one beside it.
    options = tiny | {"n_embd": "64", "checkpoint_interval": "2"}
    out = small_disk / "run"
    prepared = prepare_new(load_config([], options | {"out_dir": str(out)}))
    with pytest.raises(DiskFullError, match=r"a checkpoint needs .* and the disk of .* has .* free|is full"):
        train_prepared(prepared, Watcher())
    names = RunFolder(out).checkpoint_names()
    assert names
    assert not list((out / "checkpoints").glob(".*"))
    moved = tmp_path / "moved"
    shutil.copytree(out, moved)
    resume(moved)
    train(options, tmp_path / "whole")
    assert_same_weights(moved, tmp_path / "whole")
    assert story(moved) == story(tmp_path / "whole")


def test_a_full_disk_at_the_start_leaves_no_run(small_disk: Path, tiny: dict[str, str]) -> None:
    (small_disk / "filler").write_bytes(b"x" * (2 * 1024 * 1024 - 4096))
    with pytest.raises(DiskFullError, match="is full"):
        prepare_new(load_config([], tiny | {"out_dir": str(small_disk / "run")}))
    assert [path.name for path in small_disk.iterdir()] == ["filler"]

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
from tests.train.conftest import Train, Watcher, assert_same_weights, story


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
    tmp_path: Path, tiny: dict[str, str], train: Train, resume: Train, file: str, position: float
) -> None:
    out = tmp_path / "run"
    train(tiny, out)
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
    tmp_path: Path, tiny: dict[str, str], train: Train, resume: Train, file: str
) -> None:
    train(tiny, tmp_path / "whole")
    out = tmp_path / "damaged"
    train(tiny, out)
    flip_a_bit(out / "checkpoints" / "step-00000024" / file, 0.5)
    assert resume(out).ending == "finished"
    assert_same_weights(tmp_path / "whole", out)
    assert story(out) == story(tmp_path / "whole")
    warned = [r for r in read_metrics(out / "metrics.jsonl") if r["kind"] == "guard"]
    assert [(r["what"], r["step"]) for r in warned] == [("fallback", 16)]
    assert f"checkpoint step-00000024 cannot be used: {file}" in warned[0]["text"]


def test_the_offered_checkpoint_goes_on_to_the_same_end(
    tmp_path: Path, tiny: dict[str, str], train: Train, resume: Train
) -> None:
    train(tiny, tmp_path / "whole")
    train(tiny, tmp_path / "damaged")
    flip_a_bit(tmp_path / "damaged" / "checkpoints" / "step-00000024" / "model.safetensors", 0.5)
    assert resume(tmp_path / "damaged", checkpoint="step-00000016").ending == "finished"
    assert_same_weights(tmp_path / "whole", tmp_path / "damaged")
    assert story(tmp_path / "damaged") == story(tmp_path / "whole")


def test_with_no_whole_checkpoint_left_that_is_said(
    tmp_path: Path, tiny: dict[str, str], train: Train, resume: Train
) -> None:
    train(tiny, tmp_path / "run")
    for folder in (tmp_path / "run" / "checkpoints").glob("step-*"):
        (folder / "model.safetensors").unlink()
    with pytest.raises(
        CheckpointError, match=r"model.safetensors is missing[\s\S]*no earlier checkpoint is whole"
    ):
        resume(tmp_path / "run")


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
    tmp_path: Path, tiny: dict[str, str], train: Train, resume: Train, name: str, value: str, said: str
) -> None:
    train(tiny, tmp_path / "run", 5)
    with pytest.raises(CheckpointError, match=said):
        resume(tmp_path / "run", **{name: value})


def test_other_settings_can_change_and_are_recorded(
    tmp_path: Path, tiny: dict[str, str], train: Train, resume: Train
) -> None:
    out = tmp_path / "run"
    train(tiny, out, 5)
    outcome = resume(out, batch_size="2", gradient_accumulation_steps="4", max_iters="30")
    assert outcome.state.step == 30
    assert RunFolder(out).load_config().config.max_iters == 30
    assert [r["step"] for r in read_metrics(out / "metrics.jsonl") if r["kind"] == "resume"] == [5]


def test_a_finished_run_says_so_and_stays_as_it_is(
    tmp_path: Path, tiny: dict[str, str], train: Train
) -> None:
    out = tmp_path / "run"
    train(tiny, out)
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


def test_an_unknown_checkpoint_is_answered_with_those_that_are_there(
    tmp_path: Path, tiny: dict[str, str], train: Train, resume: Train
) -> None:
    train(tiny, tmp_path / "run")
    with pytest.raises(CheckpointError, match=r"no checkpoint 'step-9'[\s\S]*step-00000016, step-00000024"):
        resume(tmp_path / "run", checkpoint="step-9")


def test_a_run_killed_before_its_first_checkpoint_begins_again(
    tmp_path: Path, tiny: dict[str, str], train: Train, resume: Train
) -> None:
    train(tiny, tmp_path / "whole")
    prepare_new(load_config([], tiny | {"out_dir": str(tmp_path / "killed")}))
    resume(tmp_path / "killed")
    assert_same_weights(tmp_path / "whole", tmp_path / "killed")
    assert story(tmp_path / "killed") == story(tmp_path / "whole")


def test_a_checkpoint_holds_no_code_and_all_of_the_state(
    tmp_path: Path, tiny: dict[str, str], train: Train
) -> None:
    train(tiny, tmp_path / "run")
    folder = tmp_path / "run" / "checkpoints" / "step-00000024"
    assert sorted(file.name for file in folder.iterdir()) == [
        "model.safetensors", "optimizer.safetensors", "state.json",
    ]  # fmt: skip
    payload = verified_payload(RunFolder(tmp_path / "run"), folder.name)
    assert payload["state"]["step"] == 24
    assert payload["optimizer_step"] == 24
    assert payload["metrics_bytes"] < (tmp_path / "run" / "metrics.jsonl").stat().st_size
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

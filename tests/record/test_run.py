"""A run folder is taken once, and never over something else."""

from pathlib import Path

import pytest

from gptwright.config.load import load_config
from gptwright.config.schema import TrainConfig
from gptwright.errors import RunError
from gptwright.record.run import RunFolder, checkpoint_name


def test_a_created_folder_holds_its_settings(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "deep" / "run")
    run.require_free()
    run.create(TrainConfig(n_layer=3))
    assert run.load_config().config.n_layer == 3
    assert run.load_config({"max_iters": "7"}).config.max_iters == 7
    assert load_config([str(run.config_path)]).config == TrainConfig(n_layer=3)


def test_a_folder_with_a_run_or_with_other_files_is_not_taken(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    run.create(TrainConfig())
    with pytest.raises(RunError, match=r"already holds a run[\s\S]*gptwright resume "):
        run.require_free()
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine.txt").write_text("mine")
    with pytest.raises(RunError, match=r"is already there and is not a run folder"):
        RunFolder(tmp_path / "notes").require_free()
    with pytest.raises(RunError, match=r"is already there"):
        RunFolder(tmp_path / "notes" / "mine.txt").require_free()


def test_what_is_no_run_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="does not exist"):
        RunFolder.existing(tmp_path / "nowhere")
    (tmp_path / "log.txt").write_text("iter 0")
    with pytest.raises(RunError, match=r"log\.txt is not a run folder: it is a file"):
        RunFolder.existing(tmp_path / "log.txt")
    with pytest.raises(RunError, match=r"holds no config\.toml"):
        RunFolder.existing(tmp_path)


def test_taking_back_a_run_that_never_began_leaves_nothing(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    run.create(TrainConfig())
    run.remove()
    assert list(tmp_path.iterdir()) == []


def test_only_whole_checkpoints_are_seen(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    run.create(TrainConfig())
    for name in (checkpoint_name(100), checkpoint_name(20), f".{checkpoint_name(120)}.partial", "other"):
        (run.checkpoints / name).mkdir()
    assert run.checkpoint_names() == ["step-00000020", "step-00000100"]
    run.point("last", checkpoint_name(100))
    assert run.pointed("last") == "step-00000100"
    assert run.pointed("best") is None
    run.remove_unfinished()
    run.remove_checkpoint(checkpoint_name(100))
    assert run.pointed("last") is None
    assert sorted(entry.name for entry in run.checkpoints.iterdir()) == ["last", "other", "step-00000020"]


@pytest.mark.parametrize("content", ["../../etc", "", "step-1/../x", "step-00000020\nx"])
def test_a_pointer_cannot_lead_out_of_the_folder(tmp_path: Path, content: str) -> None:
    run = RunFolder(tmp_path / "run")
    run.create(TrainConfig())
    (run.checkpoints / checkpoint_name(20)).mkdir()
    (run.checkpoints / "last").write_text(content)
    assert run.pointed("last") is None


def test_a_sample_is_kept_under_its_checkpoints_name(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    run.save_sample(checkpoint_name(250), "to be")
    assert (tmp_path / "samples" / "step-00000250.txt").read_text("utf-8") == "to be"


def test_damaged_facts_are_named(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    run.run_json_path.write_text("{")
    with pytest.raises(RunError, match=r"run\.json is damaged"):
        run.read_facts()

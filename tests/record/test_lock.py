"""One process at a time writes a run; the lock ends with the process, however it ends."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gptwright.config.load import load_config
from gptwright.errors import RunError
from gptwright.record.lock import LOCK_NAME, RunLock, process_of
from gptwright.record.run import RunFolder
from gptwright.train.run import prepare_new, prepare_resume, train_prepared
from tests.train.conftest import Watcher

HOLD = """
import sys, time
from pathlib import Path
from gptwright.record.lock import RunLock
lock = RunLock(Path(sys.argv[1]))
print("held", flush=True)
time.sleep(60)
"""


def test_a_second_process_is_refused_and_a_killed_one_leaves_nothing_behind(tmp_path: Path) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    try:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(
            RunError,
            match=rf"is being written by process {holder.pid} on [\s\S]*train into another --out_dir",
        ):
            RunLock(tmp_path)
    finally:
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait()
        holder.stdout.close()
    assert str(holder.pid) in (tmp_path / LOCK_NAME).read_text("utf-8")
    lock = RunLock(tmp_path)
    assert str(os.getpid()) in (tmp_path / LOCK_NAME).read_text("utf-8")
    lock.release()
    lock.release()
    RunLock(tmp_path).release()


def test_a_lock_that_nobody_holds_on_to_is_free(tmp_path: Path) -> None:
    held = RunLock(tmp_path)
    with pytest.raises(RunError, match="is being written by process"):
        RunLock(tmp_path)
    del held
    assert RunLock(tmp_path).warning is None


def test_a_lock_file_full_of_nonsense_is_taken_over(tmp_path: Path) -> None:
    (tmp_path / LOCK_NAME).write_bytes(b"\xff\xfe{" * 100)
    first = RunLock(tmp_path)
    (tmp_path / LOCK_NAME).write_bytes(b"\xff\xfe{" * 100)
    with pytest.raises(RunError, match="is being written by another process"):
        RunLock(tmp_path)
    first.release()


def test_a_run_under_way_is_neither_resumed_nor_begun_again(tmp_path: Path, tiny: dict[str, str]) -> None:
    out = tmp_path / "run"
    loaded = load_config([], tiny | {"out_dir": str(out)})
    prepared = prepare_new(loaded)
    run = RunFolder.existing(out)
    with pytest.raises(RunError, match="is being written by process"):
        prepare_resume(run, run.load_config())
    with pytest.raises(RunError, match="already holds a run"):
        prepare_new(loaded)
    assert train_prepared(prepared, Watcher()).ending == "finished"
    prepare_resume(run, run.load_config()).let_go()


def test_two_that_begin_at_the_same_moment_do_not_both_get_the_folder(
    tmp_path: Path, tiny: dict[str, str]
) -> None:
    config = load_config([], tiny).config
    run = RunFolder(tmp_path / "run")
    run.require_free()
    lock = run.create(config)
    run.config_path.unlink()
    with pytest.raises(RunError, match="is being written by process"):
        RunFolder(tmp_path / "run").create(config)
    lock.release()
    assert run.path.is_dir()


def test_a_folder_that_a_killed_process_was_just_taking_is_free(tmp_path: Path, tiny: dict[str, str]) -> None:
    run = RunFolder(tmp_path / "run")
    for folder in (run.checkpoints, run.evaluations):
        folder.mkdir(parents=True)
    (run.path / LOCK_NAME).touch()
    (run.path / ".config.toml.partial").touch()
    run.require_free()
    run.create(load_config([], tiny).config).release()
    assert run.config_path.is_file()


@pytest.mark.parametrize(
    "said", ["", "[]", '{"process": "1"}', '{"process": -1}', '{"process": 1, "machine": "another"}', "\0"]
)
def test_a_lock_that_says_nothing_of_this_machine_names_no_process(said: str, tmp_path: Path) -> None:
    (tmp_path / LOCK_NAME).write_text(said)
    assert process_of(tmp_path) is None

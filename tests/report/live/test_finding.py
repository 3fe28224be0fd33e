"""What is taken for a run, and that nothing outside the folder ever is."""

import os
from pathlib import Path

import pytest

from gptwright.report.live import finding
from gptwright.report.live.finding import find_runs, stays_inside


def ids(root: Path) -> list[str]:
    return [run.id for run in find_runs(root)]


def put(path: Path, text: str = "step 0: train loss 4.2, val loss 4.2\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_ours_and_others_are_found_wherever_they_lie(tmp_path: Path) -> None:
    put(tmp_path / "ours" / "metrics.jsonl")
    put(tmp_path / "ours" / "log.txt")
    put(tmp_path / "group" / "deep" / "foreign" / "train.log")
    put(tmp_path / "group" / "deep" / "foreign" / "config.py")
    put(tmp_path / "logs" / "a.log")
    put(tmp_path / "logs" / "b.log")
    put(tmp_path / "hf" / "trainer_state.json")
    put(tmp_path / "empty" / "log.txt", "")
    put(tmp_path / "books" / "input.txt")
    put(tmp_path / "node_modules" / "x" / "debug.log")
    put(tmp_path / ".cache" / "x.log")
    put(tmp_path / "venv" / "pyvenv.cfg")
    put(tmp_path / "venv" / "lib" / "pip.log")
    found = {run.id: run for run in find_runs(tmp_path)}
    assert list(found) == ["group/deep/foreign", "hf", "logs/a.log", "logs/b.log", "ours"]
    assert [run.ours for run in found.values()] == [False, False, False, False, True]
    assert found["logs/a.log"].path.is_file()
    assert found["ours"].log.name == "metrics.jsonl"


def test_the_folder_itself_may_be_a_run(tmp_path: Path) -> None:
    put(tmp_path / "metrics.jsonl")
    assert ids(tmp_path) == ["."]


def test_links_lead_nowhere_outside(tmp_path: Path) -> None:
    root, outside = tmp_path / "runs", tmp_path / "outside"
    put(outside / "run" / "metrics.jsonl")
    secret = put(outside / "secret.log")
    put(root / "inside" / "metrics.jsonl")
    (root / "again").symlink_to(root / "inside")
    (root / "folder").symlink_to(outside / "run")
    (root / "file.log").symlink_to(secret)
    (root / "half").mkdir()
    (root / "half" / "metrics.jsonl").symlink_to(outside / "run" / "metrics.jsonl")
    (root / "loop").symlink_to(root)
    assert ids(root) == ["inside"]
    # What is beside a record is read for its diagnosis, so it must stay inside too.
    run = next(run for run in find_runs(root) if run.id == "inside")
    assert stays_inside(run, root.resolve())
    (root / "inside" / "config.toml").symlink_to(secret)
    assert not stays_inside(run, root.resolve())


def test_what_goes_while_it_is_looked_at_is_no_run(tmp_path: Path) -> None:
    """Logs are rotated and runs are deleted in the weeks that a page is open."""
    log = put(tmp_path / "logs" / "a.log")
    put(tmp_path / "logs" / "b.log")
    found = {run.id: run for run in find_runs(tmp_path)}
    with os.scandir(tmp_path / "logs") as entries:
        seen = {entry.name: entry for entry in entries}
    log.unlink()
    runs = finding._runs_of(tmp_path / "logs", tmp_path, seen)
    assert [run.id for run in runs] == ["logs/b.log"]
    # Nothing is read of it, and the diagnosis says that it is not there.
    assert stays_inside(found["logs/a.log"], tmp_path)


def test_a_search_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(30):
        put(tmp_path / f"run-{number}" / "metrics.jsonl")
    put(tmp_path / "a/b/c/d/e/f/g" / "metrics.jsonl")
    assert len(ids(tmp_path)) == 30
    monkeypatch.setattr(finding, "MOST_RUNS", 7)
    assert len(ids(tmp_path)) == 7
    monkeypatch.setattr(finding, "MOST_ENTRIES", 31)
    assert len(ids(tmp_path)) == 0

"""Repositories, from a small server that speaks the hub's few endpoints, and from the cache without one."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gptwright.data.sources import hub
from gptwright.errors import DataError
from tests.data.sources.hub_server import Repository, environment, serving

CARD = """---
configs:
- config_name: sample-1
  data_files:
  - split: train
    path: sample/1/*
---
A data set.
"""


@pytest.fixture
def repository(fineweb: Path) -> Iterator[Repository]:
    files = {"README.md": CARD.encode()}
    for path in sorted(fineweb.iterdir()):
        files[f"sample/1/{path.name}"] = path.read_bytes()
    files["other/notes.txt"] = b"text\n" * 400
    configs = [{"config_name": "sample-1", "data_files": [{"split": "train", "path": "sample/1/*"}]}]
    with serving(Repository("acme/tiny", files, card={"configs": configs})) as there:
        yield there


def prepare(source: str, out: Path, url: str, home: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own: the hub's library reads its settings when it is imported."""
    return subprocess.run(
        [
            sys.executable, "-m", "gptwright", "prepare", source, "--tokenizer", "byte",
            "--workers", "1", "--out", str(out), "--json",
        ],
        capture_output=True, text=True, check=False, env=os.environ | environment(url, home, **more),
    )  # fmt: skip


@pytest.mark.slow
def test_a_configuration_is_downloaded_once_and_read_without_network_after(
    tmp_path: Path, repository: Repository
) -> None:
    repository.cut = 1
    done = prepare("hf:acme/tiny/sample-1", tmp_path / "d", repository.url, tmp_path / "home")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["documents"], report["duplicates"]) == (1200, 20)
    size = sum(len(content) for name, content in repository.files.items() if "parquet" in name)
    assert f"downloading 2 of 2 files of acme/tiny, {size / 1024:.1f} KiB, into" in done.stderr
    # The download that broke off was taken up; below 10 MB the hub's library does so from the start.
    first = [path for command, path, _ in repository.asked if command == "GET" and "000_0" in path]
    assert len(first) == 2
    manifest = json.loads((tmp_path / "d" / "manifest.json").read_text())
    assert manifest["settings"]["source"] == "hf:acme/tiny/sample-1"

    before = len(repository.asked)
    again = prepare("hf:acme/tiny/sample-1", tmp_path / "e", repository.url, tmp_path / "home")
    assert again.returncode == 0, again.stderr
    assert "downloading" not in again.stderr
    assert not any(command == "GET" and "resolve" in path for command, path, _ in repository.asked[before:])

    offline = prepare(
        "hf:acme/tiny/sample/1", tmp_path / "f", "http://127.0.0.1:9", tmp_path / "home", HF_HUB_OFFLINE="1"
    )
    assert offline.returncode == 0, offline.stderr
    assert (tmp_path / "f" / "train.bin").read_bytes() == (tmp_path / "d" / "train.bin").read_bytes()


@pytest.mark.slow
def test_what_cannot_be_had_is_one_clear_message(tmp_path: Path, repository: Repository) -> None:
    home = tmp_path / "home"
    missing = prepare("hf:acme/nothing", tmp_path / "d", repository.url, home)
    assert missing.returncode == 2
    assert "there is no dataset repository acme/nothing" in missing.stderr
    folder = prepare("hf:acme/tiny/sample-2", tmp_path / "d", repository.url, home)
    assert "acme/tiny has no folder, file or configuration 'sample-2'" in folder.stderr
    assert "its folders are other, sample/1" in folder.stderr
    network = prepare("hf:acme/tiny", tmp_path / "d", "http://127.0.0.1:9", home)
    assert network.returncode == 2
    assert "acme/tiny cannot be downloaded: " in network.stderr
    offline = prepare("hf:acme/tiny", tmp_path / "d", repository.url, home, HF_HUB_OFFLINE="1")
    assert "acme/tiny is not in the cache, and the hub is not to be asked" in offline.stderr
    for answer in (missing, folder, network, offline):
        assert "Traceback" not in answer.stderr
        assert not (tmp_path / "d").exists()


@pytest.mark.parametrize("source", ["hf:", "hf:acme", "hf:acme//x"])
def test_an_address_that_is_none_is_explained(source: str) -> None:
    with pytest.raises(DataError, match="is not a repository"):
        hub.fetch_repository(source, (".parquet",), lambda _: None)

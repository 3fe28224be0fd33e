"""GPT-2 by its name, from a server that speaks the hub's endpoints, and from the cache without one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.data.sources.hub_server import Repository, environment, serving
from tests.interop.test_gpt2_folder import openai_like


def imported(out: Path, there: Repository | str, home: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own: the hub's library reads its settings when it is imported."""
    return subprocess.run(
        [sys.executable, "-m", "gptwright", "import", "gpt2", "--out", str(out), "--json"],
        capture_output=True, text=True, check=False, env=os.environ | environment(there, home, **more),
    )  # fmt: skip


@pytest.mark.slow
def test_a_name_is_fetched_with_its_size_said_resumed_verified_and_used_offline(tmp_path: Path) -> None:
    openai_like(tmp_path / "gpt2")
    files = {path.name: path.read_bytes() for path in (tmp_path / "gpt2").iterdir()}
    files["pytorch_model.bin"] = b"not wanted"
    there = Repository(
        "openai-community/gpt2", files, kind="models", lfs=frozenset({"model.safetensors"}), cut=1
    )
    with serving(there):
        done = imported(tmp_path / "a", there, tmp_path / "home")
        assert done.returncode == 0, done.stderr
        size = (len(files["config.json"]) + len(files["model.safetensors"])) / 2**20
        assert f"downloading 2 of 2 files of openai-community/gpt2, {size:.1f} MiB, into" in done.stderr
        assert json.loads(done.stdout)["origin"] == "OpenAI's gpt2"
        ranges = [r for command, path, r in there.asked if command == "GET" and path.endswith(".safetensors")]
        assert len(ranges) == 2  # the first broke off
        there.damage = {"model.safetensors"}
        damaged = imported(tmp_path / "b", there, tmp_path / "other")
        assert damaged.returncode == 2
        assert "model.safetensors of openai-community/gpt2 arrived damaged" in damaged.stderr
        assert not (tmp_path / "b").exists()
        assert not list((tmp_path / "other").rglob("model.safetensors"))
    offline = imported(tmp_path / "c", "http://127.0.0.1:9", tmp_path / "home", HF_HUB_OFFLINE="1")
    assert offline.returncode == 0, offline.stderr
    assert "downloading" not in offline.stderr
    folders = [tmp_path / name / "checkpoints" / "step-00000000" / "model.safetensors" for name in "ac"]
    assert folders[0].read_bytes() == folders[1].read_bytes()

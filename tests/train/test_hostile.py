"""Checkpoints that somebody changed and gave fitting hashes: refused, and nothing of them believed."""

import hashlib
import json
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save

from gptwright.config.load import load_config
from gptwright.errors import CheckpointError
from gptwright.record.run import RunFolder
from gptwright.train.run import prepare_new, prepare_resume, train_prepared
from gptwright.train.seal import sealed
from tests.conftest import TINY
from tests.train.conftest import Watcher


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, dataset: Path) -> Path:
    """A finished run."""
    out = tmp_path_factory.mktemp("trained") / "run"
    train_prepared(
        prepare_new(load_config([], TINY | {"dataset": str(dataset), "out_dir": str(out)})), Watcher()
    )
    return out


@pytest.fixture
def out(tmp_path: Path, trained: Path) -> Path:
    """A copy of it, to be tampered with."""
    return Path(shutil.copytree(trained, tmp_path / "run"))


def resume_from(out: Path, checkpoint: str) -> None:
    """Loads a checkpoint as `resume` does."""
    run = RunFolder(out)
    prepare_resume(run, run.load_config(), checkpoint=checkpoint).let_go()


def resealed(run: RunFolder, name: str, **changes: Any) -> None:
    """Changes a checkpoint's state.json, and gives it a fitting seal, as somebody who means harm would."""
    path = run.checkpoints / name / "state.json"
    payload = json.loads(path.read_bytes())["checkpoint"]
    path.write_bytes(sealed(payload | changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"files": {"../../../secret": {"bytes": 0, "sha256": "0" * 64}}},
        {"files": {}},
        {"metrics_bytes": -5},
        {"metrics_bytes": 2**70},
        {"state": {"step": -1}},
        {"state": {"step": 10**30}},
        {"state": {"step": 24, "skipped": "x" * 100}},
        {"scaler": {"scale": "__import__('os')"}},
        {"optimizer_step": float("nan")},
        {"optimizer_step": 2**63},
        {"schema": "gptwright.checkpoint/99"},
    ],
)
def test_what_a_checkpoint_says_is_checked_though_its_hash_is_right(
    out: Path, changes: dict[str, Any]
) -> None:
    run = RunFolder(out)
    resealed(run, "step-00000024", **changes)
    with pytest.raises(CheckpointError, match=r"step-00000024 is damaged: state\.json"):
        resume_from(out, "step-00000024")


@pytest.mark.parametrize(
    "content",
    [
        struct.pack("<Q", 2**63 - 1) + b"{}",
        struct.pack("<Q", 99_999_999) + b"{}",
        struct.pack("<Q", 90)
        + b'{"a": {"dtype": "F32", "shape": [9000000000000], "data_offsets": [0, 9]}}'.ljust(90),
        struct.pack("<Q", 5) + b"[[[[[",
        b"",
    ],
)
def test_a_tensor_file_with_a_giant_header_is_refused(out: Path, content: bytes) -> None:
    run = RunFolder(out)
    folder = run.checkpoints / "step-00000024"
    (folder / "model.safetensors").write_bytes(content)
    files = json.loads((folder / "state.json").read_bytes())["checkpoint"]["files"]
    files["model.safetensors"] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    resealed(run, folder.name, files=files)
    with pytest.raises(CheckpointError, match=r"holds no tensors|does not fit this model"):
        resume_from(out, folder.name)


def test_weights_of_another_model_are_refused_by_name(out: Path) -> None:
    folder = out / "checkpoints" / "step-00000024"
    content = save({"transformer.wpe.weight": torch.zeros(3, 3)})
    (folder / "model.safetensors").write_bytes(content)
    files = json.loads((folder / "state.json").read_bytes())["checkpoint"]["files"]
    files["model.safetensors"] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    resealed(RunFolder(out), folder.name, files=files)
    with pytest.raises(CheckpointError, match=r"does not fit this model: transformer\.h\.0\.attn"):
        resume_from(out, folder.name)


@pytest.mark.parametrize(
    "name", ["../../other/step-00000024", "/etc", "step-00000024/../step-00000024", ".."]
)
def test_names_of_checkpoints_stay_in_the_run(out: Path, name: str) -> None:
    with pytest.raises(CheckpointError, match="has no checkpoint"):
        resume_from(out, name)
    (out / "checkpoints" / "best").write_text(name)
    assert RunFolder(out).pointed("best") is None

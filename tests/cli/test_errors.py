"""Every way in which the input can be wrong: one clear message, exit status 2, nothing half-written."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from gptwright.hardware.probe import try_compiler
from tests.conftest import Answer, as_arguments

Command = Callable[..., Answer]


@pytest.fixture
def refused(tmp_path: Path, dataset: Path, tiny: dict[str, str], gptwright: Command) -> Callable[..., str]:
    """Trains with something wrong; checks the status and that nothing was written; returns the message."""

    def call(*arguments: str, **options: str) -> str:
        before = tree(tmp_path)
        given = tiny | {"out_dir": str(tmp_path / "run")} | options
        answer = gptwright("train", *arguments, *as_arguments(given))
        assert answer.status == 2
        assert answer.err.startswith("error: ")
        assert answer.err.count("error: ") == 1
        assert "Traceback" not in answer.err
        assert tree(tmp_path) == before
        return answer.err

    return call


def tree(folder: Path) -> dict[str, bytes | None]:
    """Every file's bytes; a lock says who held it last, which is not a run's content."""
    paths = (path for path in folder.rglob("*") if path.name != "run.lock")
    return {str(path): path.read_bytes() if path.is_file() else None for path in paths}


@pytest.fixture
def broken(tmp_path: Path, dataset: Path) -> Path:
    """A copy of the dataset to break."""
    shutil.copytree(dataset, tmp_path / "broken")
    return tmp_path / "broken"


def test_unknown_option(refused: Callable[..., str]) -> None:
    text = refused("--n_layr=4")
    assert "unknown setting --n_layr" in text
    assert "did you mean n_layer?" in text


def test_width_not_divisible_by_heads(refused: Callable[..., str]) -> None:
    text = refused(n_embd="100", n_head="6")
    assert "n_embd = 100 is not divisible by n_head = 6" in text
    assert "--n_embd=96 or --n_embd=102" in text


def test_vocabulary_larger_than_the_models(refused: Callable[..., str]) -> None:
    text = refused(vocab_size="5")
    assert "ids, and vocab_size = 5" in text
    assert "--vocab_size=" in text


def test_token_id_out_of_range(refused: Callable[..., str], broken: Path) -> None:
    ids = np.fromfile(broken / "train.bin", dtype="<u2")
    ids[777] = 999
    ids.tofile(broken / "train.bin")
    text = refused(dataset=str(broken))
    assert "train.bin" in text
    assert "999" in text
    assert "777" in text


def test_validation_split_shorter_than_a_block(refused: Callable[..., str]) -> None:
    text = refused(block_size="100000")
    assert "block_size" in text
    assert "100000" in text.replace(",", "")


def test_missing_shard(refused: Callable[..., str], broken: Path) -> None:
    (broken / "val.bin").unlink()
    assert "val.bin" in refused(dataset=str(broken))


def test_truncated_shard(refused: Callable[..., str], broken: Path) -> None:
    content = (broken / "train.bin").read_bytes()
    (broken / "train.bin").write_bytes(content[:-1001])
    text = refused(dataset=str(broken))
    assert "train.bin" in text
    assert f"{len(content) - 1001:,}" in text


def test_dataset_that_is_not_there(refused: Callable[..., str]) -> None:
    text = refused(dataset="no-such-data")
    assert "no-such-data" in text
    assert "gptwright prepare" in text


def test_config_with_code_in_it(refused: Callable[..., str], tmp_path: Path) -> None:
    marker = tmp_path / "executed"
    config = tmp_path / "evil.py"
    config.write_text(f"n_layer = 2\nimport os; os.system('touch {marker}')\n")
    text = refused(str(config))
    assert f"{config}:2 is not an assignment of a literal: import os" in text
    assert "nothing in them is executed" in text
    assert not marker.exists()


def test_config_that_is_not_there(refused: Callable[..., str]) -> None:
    text = refused("shakespeare-cha")
    assert "no config file and no preset is called 'shakespeare-cha'" in text
    assert "use shakespeare-char" in text


def test_the_nearest_file_is_named_for_a_path_that_is_not_there(
    refused: Callable[..., str], tmp_path: Path
) -> None:
    (tmp_path / "train_gpt2.py").touch()
    assert f"use {tmp_path / 'train_gpt2.py'}" in refused(str(tmp_path / "train_gtp2.py"))


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has CUDA")
def test_device_that_is_not_there(refused: Callable[..., str]) -> None:
    text = refused(device="cuda")
    assert "device = 'cuda' is not on this machine" in text
    assert "--device=auto" in text


def test_run_folder_that_is_taken(refused: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    assert "is already there and is not a run folder" in refused(out_dir=str(tmp_path / "mine"))


def test_several_processes(refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.delenv("RANK", raising=False)
    text = refused()
    assert "WORLD_SIZE is 2, without RANK" in text
    assert "start them with torchrun, or unset WORLD_SIZE" in text


def test_compilation_without_a_compiler(refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    try_compiler()  # what it finds on today's path must not be remembered for another
    monkeypatch.setenv("PATH", "")
    text = refused(compile="True")
    assert "compile = True cannot be done here: no C++ compiler is installed" in text
    assert "--compile=False" in text


def test_disk_full(refused: Callable[..., str], small_disk: Path) -> None:
    (small_disk / "filler").write_bytes(b"x" * (2 * 1024 * 1024 - 4096))
    assert "is full" in refused(out_dir=str(small_disk / "run"))


def test_changed_dataset_and_corrupted_checkpoint(
    tmp_path: Path, tiny: dict[str, str], broken: Path, gptwright: Command
) -> None:
    out = tmp_path / "run"
    options = tiny | {"out_dir": str(out), "dataset": str(broken)}
    assert gptwright("train", *as_arguments(options)).status == 0
    ids = np.fromfile(broken / "train.bin", dtype="<u2")
    ids[[500, 501]] = ids[[501, 500]] if ids[500] != ids[501] else 0
    original = (broken / "train.bin").read_bytes()
    ids.tofile(broken / "train.bin")
    before = tree(tmp_path)
    answer = gptwright("resume", str(out), "--max_iters=30")
    assert answer.status == 2
    assert "the dataset has changed since" in answer.err
    assert tree(tmp_path) == before

    (broken / "train.bin").write_bytes(original)
    weights = out / "checkpoints" / "step-00000024" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-8] + b"\0" * 8)
    before = tree(tmp_path)
    answer = gptwright("resume", str(out), "--checkpoint=step-00000024")
    assert answer.status == 2
    assert "is damaged: model.safetensors has another sha256" in answer.err
    assert f"gptwright resume {out} --checkpoint=step-00000016" in answer.err
    assert tree(tmp_path) == before
    answer = gptwright("resume", str(out), "--max_iters=30")
    assert answer.status == 0
    assert "model.safetensors has another sha256" in " ".join(answer.out.split())


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("--temperature=nan", "temperature = nan is not a number from 0 up"),
        ("--temperature=-1", "temperature = -1.0 is not"),
        ("--top_p=0", "top_p = 0.0 is not above 0 and at most 1"),
        ("--top_p=nan", "top_p = nan is not"),
        ("--start=FILE:nowhere.txt", "the prompt file nowhere.txt cannot be read"),
        (f"--start=LINES:{os.devnull}", "has no line with a prompt"),
        ("--checkpoint=step-9", "has no checkpoint 'step-9'"),
    ],
)
def test_sampling_options_that_mean_nothing(
    tmp_path: Path, tiny: dict[str, str], gptwright: Command, option: str, said: str
) -> None:
    out = tmp_path / "run"
    assert gptwright("train", *as_arguments(tiny | {"out_dir": str(out), "max_iters": "1"})).status == 0
    answer = gptwright("sample", str(out), option)
    assert answer.status == 2
    assert said in answer.err
    assert "Traceback" not in answer.err


def test_sampling_from_what_is_no_run(tmp_path: Path, gptwright: Command) -> None:
    answer = gptwright("sample", str(tmp_path))
    assert answer.status == 2
    assert "is not a run folder: it holds no config.toml" in answer.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("sample",), "name the run folder: gptwright sample RUN"),
        (("resume", "a", "b"), "resume takes one run folder; also given: b"),
        (("prepare", "x"), "Missing option '--out'"),
        (("sample", "x", "--seed=-1"), "-1 is not in the range"),
        (("train", "--seed=9223372036854775808"), "seed = 9223372036854775808 (option) is not accepted"),
    ],
)
def test_usage(
    gptwright: Command,
    arguments: tuple[str, ...],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = gptwright(*arguments)
    assert answer.status == 2
    assert said in answer.err


def test_sampling_takes_the_folder_of_nanogpt_and_train(
    tmp_path: Path, gptwright: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "out").mkdir()
    answer = gptwright("sample", "--start=Hi")
    assert answer.status == 2
    assert "out is not a run folder" in answer.err


@pytest.mark.parametrize("init_from", ["gpt2-xl", "no-such-weights"])
def test_a_missing_dataset_is_said_before_weights_are_looked_for(
    tmp_path: Path, gptwright: Command, monkeypatch: pytest.MonkeyPatch, init_from: str
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = gptwright("train", f"--init_from={init_from}", "--dataset=shakespeare", "--device=cpu")
    assert answer.status == 2
    assert "there is no dataset 'shakespeare'" in answer.err
    assert "downloaded" not in answer.err


def test_sampling_from_weights_says_how_they_become_a_run(gptwright: Command) -> None:
    answer = gptwright("sample", "--init_from=gpt2-xl", "--start=Hi")
    assert answer.status == 2
    assert "gptwright import gpt2-xl --out DIR, then gptwright sample DIR" in answer.err

"""What every test may use. One thread each: the suite runs in several processes on few cores."""

import os

os.environ["OMP_NUM_THREADS"] = "1"

import functools
import gc
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

from gptwright.cli.main import run
from gptwright.data.prepare import prepare

# A busy machine is no failure, and CI must give the same answer twice.
settings.register_profile("suite", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("suite")

# `make test-long`: the full form of what CI runs a part of.
LONG = bool(os.environ.get("GPTWRIGHT_LONG"))
SHARED = Path(__file__).resolve().parents[2] / "shared"

# A model that trains in milliseconds, by nanoGPT's option names.
TINY = {
    "n_layer": "2",
    "n_head": "2",
    "n_embd": "32",
    "block_size": "16",
    "batch_size": "4",
    "gradient_accumulation_steps": "2",
    "learning_rate": "1e-2",
    "min_lr": "1e-3",
    "warmup_iters": "4",
    "max_iters": "24",
    "lr_decay_iters": "24",
    "eval_interval": "8",
    "eval_iters": "2",
    "device": "cpu",
    # A CPU takes what is quicker for a moment, and two runs need not take the same.
    "dtype": "float32",
    "kernels": "False",
}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In several processes, files with slow tests come first, so that none is begun when the rest is done."""
    if hasattr(config, "workerinput"):
        slow = Counter(item.path for item in items if item.get_closest_marker("slow"))
        items.sort(key=lambda item: item.path not in slow)


def pytest_collection_finish() -> None:
    """What is loaded by now stays: a run that collects garbage need not look through torch and all tests."""
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def unflushed() -> Iterator[None]:
    """Nobody waits for the disk: what a flush saves is lost by a power cut alone, and no test makes one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


@pytest.fixture
def tinyshakespeare() -> Path:
    """The real Tiny Shakespeare."""
    path = SHARED / "data" / "tinyshakespeare.txt"
    if not path.is_file():
        pytest.skip("needs ../shared/data/tinyshakespeare.txt")
    return path


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 2 MiB, so that "disk full" is the kernel's own answer."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root on Linux")
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", folder], check=False)
    if mounted.returncode:
        pytest.skip("this machine does not let root mount a tmpfs")
    yield folder
    subprocess.run(["umount", folder], check=True)


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A character dataset of some 40,000 tokens."""
    folder = tmp_path_factory.mktemp("corpus")
    rng = np.random.default_rng(3)
    words = np.array(["to", "be", "or", "not", "that", "is", "the", "question", "whether", "nobler"])
    lines = [" ".join(rng.choice(words, size=7)) for _ in range(1200)]
    (folder / "corpus.txt").write_text("\n".join(lines), encoding="utf-8")
    prepare(str(folder / "corpus.txt"), out=folder / "words", tokenizer="char")
    return folder / "words"


@pytest.fixture
def tiny(dataset: Path) -> dict[str, str]:
    """Options of a tiny run on that dataset."""
    return TINY | {"dataset": str(dataset)}


@pytest.fixture
def captured(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch.compile captures and differentiates the model's graphs, but runs them with eager kernels.

    The C++ compiler takes a minute for what a test compiles in full, and its kernels are torch's to prove:
    tests/model/test_loss.py has them made for one model, the long form everywhere.
    """
    if not LONG:
        import torch

        monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="aot_eager"))


def as_arguments(options: dict[str, str]) -> list[str]:
    """Options as a person types them."""
    return [f"--{name}={value}" for name, value in options.items()]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command line came back with."""

    status: int
    out: str
    err: str


@pytest.fixture
def gptwright(capsys: pytest.CaptureFixture[str]) -> Callable[..., Answer]:
    """Runs the command line in this process."""

    def call(*arguments: str) -> Answer:
        capsys.readouterr()
        status = run(arguments)
        captured = capsys.readouterr()
        return Answer(status, captured.out, captured.err)

    return call

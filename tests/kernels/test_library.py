"""Kernels are built once for a machine, by gcc alone; where they cannot be, it is said why."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from gptwright.errors import DeviceError
from gptwright.hardware.kernels import missing_for_kernels
from gptwright.kernels import library
from gptwright.kernels.library import Kernels, Missing, load_kernels, require_kernels

needs_gcc = pytest.mark.skipif(missing_for_kernels() is not None, reason=str(missing_for_kernels()))
# What gcc is told: what it makes is called once, and need not be quick.
QUICK = tuple("-O0" if flag == "-O3" else flag for flag in library.FLAGS)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder of this test's own."""
    monkeypatch.setattr(library, "FLAGS", QUICK)
    monkeypatch.setenv("GPTWRIGHT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "kernels"


GCC = 'if [ "$1" = --version ]; then echo "Free Software Foundation"; exit; fi\n'


def works(found: Kernels | Missing) -> bool:
    """Whether kernels square a number."""
    assert isinstance(found, Kernels)
    x = torch.tensor([3.0])
    found("relu2", x, x, 1)
    return x.tolist() == [9.0]


@needs_gcc
def test_they_are_built_once_and_found_again(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert works(load_kernels(torch.float32))
    (built,) = cache.iterdir()
    library._loaded.cache_clear()
    calls: list[list[str]] = []
    real = subprocess.run

    def run(command: list[str], **options: object) -> subprocess.CompletedProcess[bytes]:
        calls.append(command)
        return real(command, **options)  # type: ignore[call-overload,no-any-return]

    monkeypatch.setattr(subprocess, "run", run)
    assert works(load_kernels(torch.float32))
    assert [command[1:] for command in calls] == [["--version"]]
    assert list(cache.iterdir()) == [built]


@needs_gcc
def test_what_decides_the_code_decides_its_name(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert works(load_kernels(torch.float32))
    library._loaded.cache_clear()
    monkeypatch.setattr(library, "FLAGS", (*library.FLAGS, "-g0"))
    assert works(load_kernels(torch.float32))
    assert len(list(cache.iterdir())) == 2


@needs_gcc
def test_a_cache_that_cannot_be_written_is_done_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a file").write_text("in the way")
    monkeypatch.setattr(library, "FLAGS", QUICK)
    monkeypatch.setenv("GPTWRIGHT_CACHE", str(tmp_path / "a file" / "cache"))
    assert works(load_kernels(torch.float32))


@needs_gcc
def test_several_processes_may_build_at_once(cache: Path) -> None:
    program = (
        "import torch\n"
        "from gptwright.kernels import library\n"
        f"library.FLAGS = {QUICK}\n"
        "assert isinstance(library.load_kernels(torch.float32), library.Kernels)"
    )
    processes = [subprocess.Popen([sys.executable, "-c", program]) for _ in range(3)]
    assert [process.wait(timeout=100) for process in processes] == [0, 0, 0]
    assert len(list(cache.iterdir())) == 1


def compiler(folder: Path, script: str) -> None:
    """Puts a compiler of a test's own into a folder."""
    folder.mkdir()
    path = folder / "gcc"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (None, "no gcc is installed, which our own kernels are built with"),
        ("echo Apple clang", "is not gcc, whose OpenMP is torch's"),
        (GCC + 'echo "x: fatal error: no" >&2; exit 1', "could not be built: x: fatal error: no"),
        (GCC + "true", "could not be built"),
    ],
    ids=["none", "clang", "fails", "makes nothing"],
)
@pytest.mark.usefixtures("cache")
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="kernels are for Linux")
def test_where_there_are_none_it_is_said_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str | None, reason: str
) -> None:
    folder = tmp_path / "bin"
    folder.mkdir() if script is None else compiler(folder, script)
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(folder))
    found = load_kernels(torch.float32)
    assert isinstance(found, Missing)
    assert reason in found.reason
    with pytest.raises(DeviceError, match="kernels = True cannot be done here"):
        require_kernels(torch.float32)


@pytest.mark.skipif(os.name != "posix", reason="another system is only pretended")
def test_other_systems_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert isinstance(load_kernels(torch.float32), Missing)

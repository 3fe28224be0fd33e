"""Starting the real `torchrun` and killing what it started; what the tests and the full form share."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import psutil


def torchrun(
    *arguments: str, cwd: Path, launcher: Sequence[str] = (), settings: Sequence[str] = ()
) -> subprocess.Popen[bytes]:
    """Starts `torchrun SETTINGS -m gptwright ARGUMENTS`, its output in `torchrun.txt`.

    Args:
        arguments: of gptwright.
        cwd: where it runs.
        launcher: a command before it, such as `ip netns exec NAME`.
        settings: of torchrun.
    """
    command = [*launcher, sys.executable, "-m", "torch.distributed.run", *settings, "-m", "gptwright"]
    with (cwd / "torchrun.txt").open("ab") as output:
        return subprocess.Popen(
            [*command, *arguments],
            cwd=cwd,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )


def said(cwd: Path) -> str:
    """What torchrun and its processes have printed so far."""
    return (cwd / "torchrun.txt").read_text("utf-8", errors="replace")


def ranks_of(agent: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """The processes that torchrun runs now, by their rank."""
    return sorted(psutil.Process(agent.pid).children(), key=lambda process: process.pid)


def length_of(path: Path) -> int:
    """Bytes of a file; 0 where there is none."""
    return path.stat().st_size if path.exists() else 0

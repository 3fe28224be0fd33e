"""Starts a run again and again, and kills it with SIGKILL at random moments; a program of its own.

    python kill_driver.py OUT KILLS SEED OPTION…

torch is imported once, and computes nothing before a fork, which would not be safe. Every attempt is a
forked child that starts or resumes the run as the command line does. Half the kills come at a random moment
after the child began, most of them during start-up; the others at a random moment after it has written to
its record, which falls into steps, evaluations and checkpoint writes, however fast the machine is. Prints
one JSON line: what each kill found.
"""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import torch._dynamo  # noqa: F401 - the first optimizer imports it, which takes a child two seconds

from gptwright.config.load import load_config
from gptwright.record.run import RunFolder
from gptwright.train import checkpoint
from gptwright.train.run import prepare_new, prepare_resume, train_prepared


class Deaf:
    """A listener that shows nothing."""

    def recorded(self, record: dict[str, object]) -> None:
        pass

    def stepped(self, step: int) -> None:
        pass


def attempt(out: Path, options: dict[str, str]) -> None:
    """What a child does: `train`, or `resume` if the folder holds a run."""
    run = RunFolder(out)
    if run.config_path.exists():
        prepared = prepare_resume(run, run.load_config())
    else:
        prepared = prepare_new(load_config([], options | {"out_dir": str(out)}))
    train_prepared(prepared, Deaf())


def wait_for_progress(record: Path, before: int, patience: float = 60.0) -> None:
    """Waits until the record has another length than before."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline and length_of(record) == before:
        time.sleep(0.005)


def length_of(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def killed_attempt(
    out: Path, options: dict[str, str], seconds: float, *, after_progress: bool
) -> dict[str, object]:
    """Forks an attempt and kills it some seconds after its start or its first line; says what it left."""
    record = out / "metrics.jsonl"
    before = length_of(record)
    child = os.fork()
    if child == 0:
        os.dup2(os.open("child.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
        attempt(out, options)
        os._exit(0)
    if after_progress:
        wait_for_progress(record, before)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    run = RunFolder(out)
    names = run.checkpoint_names()
    return {
        "killed": os.WIFSIGNALED(status),
        "exit": os.waitstatus_to_exitcode(status),
        "checkpoint": names[-1] if names else None,
        "inside_a_write": any(run.checkpoints.glob(".*")) if run.checkpoints.is_dir() else False,
        "whole": all(checkpoint.verified_payload(run, name) is not None for name in names),
    }


def main() -> None:
    """Kills, then lets the run end."""
    out, kills, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    options = dict(argument.removeprefix("--").split("=", 1) for argument in sys.argv[4:])
    draw = random.Random(seed)
    found = [
        killed_attempt(out, options, draw.uniform(0.0, 0.3), after_progress=True)
        if number % 2
        else killed_attempt(out, options, draw.uniform(0.0, 2.0), after_progress=False)
        for number in range(kills)
    ]
    child = os.fork()
    if child == 0:
        attempt(out, options)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    print(json.dumps({"kills": found, "last": os.waitstatus_to_exitcode(status)}))


if __name__ == "__main__":
    main()

"""Starts a run again and again, and kills it with SIGKILL at random moments; a program of its own.

    python kill_driver.py OUT KILLS SEED OPTION…

torch is imported once, and computes nothing before a fork, which would not be safe. Every attempt is a
forked child that starts or resumes the run as the command line does. A kill comes at a random moment after
the child began, which falls into start-up, steps, evaluations and checkpoint writes alike. Prints one JSON
line: what each kill found.
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


def killed_attempt(out: Path, options: dict[str, str], seconds: float) -> dict[str, object]:
    """Forks an attempt and kills it after some seconds; says what it left."""
    child = os.fork()
    if child == 0:
        os.dup2(os.open("child.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
        attempt(out, options)
        os._exit(0)
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
    found = [killed_attempt(out, options, draw.uniform(0.0, 2.5)) for _ in range(kills)]
    child = os.fork()
    if child == 0:
        attempt(out, options)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    print(json.dumps({"kills": found, "last": os.waitstatus_to_exitcode(status)}))


if __name__ == "__main__":
    main()

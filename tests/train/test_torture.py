"""Whatever is done to a run, it ends as an undisturbed one: the short form of `make torture`."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import as_arguments

DRIVER = Path(__file__).with_name("torture.py")
PARTS = {
    "kill": 4, "write_kill": 6, "disk": 4, "quota": 2, "bit": 2, "record": 2, "two": 1, "clock": 1,
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the driver forks, so that torch is imported once")
def test_a_tortured_run_ends_as_an_undisturbed_one(tmp_path: Path, tiny: dict[str, str]) -> None:
    options = tiny | {
        "max_iters": "160", "lr_decay_iters": "160", "checkpoint_interval": "4", "eval_interval": "40",
        "dropout": "0.1", "sampling": "epoch", "log_interval": "2", "async_checkpoints": "True",
    }  # fmt: skip
    parts = [f"{name}={count}" for name, count in PARTS.items()]
    done = subprocess.run(
        [
            sys.executable,
            str(DRIVER),
            str(tmp_path / "runs"),
            "20261127",
            *parts,
            "--",
            *as_arguments(options),
        ],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    said = (tmp_path / "runs" / "child.txt").read_text("utf-8")[-2000:]
    assert found["problems"] == [], said
    # The tortures must have met what they are meant for.
    assert found["parts"]["kill"]["killed"] >= 3
    assert found["parts"]["write_kill"]["inside a write"] >= 2
    assert found["parts"]["disk"]["refused"] >= 3
    assert found["parts"]["two"]["second refused"] == 1
    assert '"what": "fallback"' in (tmp_path / "runs" / "bit" / "metrics.jsonl").read_text("utf-8")

"""SIGKILL at random moments, checkpoint writes included: the run goes on as if nothing had happened."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import as_arguments
from tests.train.conftest import Train, assert_same_weights, story

KILLS = 30


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the driver forks, so that torch is imported once")
def test_thirty_kills_lose_and_double_nothing(tmp_path: Path, tiny: dict[str, str], train: Train) -> None:
    options = tiny | {
        "max_iters": "3000", "lr_decay_iters": "3000", "checkpoint_interval": "3", "eval_interval": "30",
        "dropout": "0.1", "sampling": "epoch", "log_interval": "2",
    }  # fmt: skip
    driver = Path(__file__).with_name("kill_driver.py")
    command = [sys.executable, str(driver), str(tmp_path / "killed"), str(KILLS), "20261127"]
    done = subprocess.run(
        [*command, *as_arguments(options)],
        capture_output=True,
        text=True,
        timeout=1500,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert all(kill["killed"] for kill in found["kills"]), found
    assert all(kill["whole"] for kill in found["kills"])
    assert found["last"] == 0
    # The kills must have met a run under way, and some of them a checkpoint that was being written.
    assert len({kill["checkpoint"] for kill in found["kills"]}) > 8
    assert any(kill["inside_a_write"] for kill in found["kills"])
    train(options, tmp_path / "whole")
    assert_same_weights(tmp_path / "killed", tmp_path / "whole")
    assert story(tmp_path / "killed") == story(tmp_path / "whole")

"""Real `torchrun`: killed ranks and their restarts, and one message for a failure.

`benchmarks/ranks.py` is the full form: twenty kills, and two hosts with a cut cable.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gptwright.record.metrics import read_metrics
from tests.conftest import as_arguments
from tests.train.conftest import assert_same_weights, story
from tests.train.torchrun import length_of, ranks_of, said, torchrun, wait_until

TWO = ["--standalone", "--nproc_per_node=2"]

pytestmark = pytest.mark.slow


@pytest.fixture
def longer(tiny: dict[str, str]) -> dict[str, str]:
    """A run of some seconds, with a checkpoint every ten steps."""
    return tiny | {
        "max_iters": "400", "lr_decay_iters": "400", "eval_interval": "200", "checkpoint_interval": "10",
        "dropout": "0.1", "log_interval": "10",
    }  # fmt: skip


def test_killed_ranks_are_restarted_and_the_run_ends_in_the_right_weights(
    tmp_path: Path, longer: dict[str, str]
) -> None:
    """One rank is killed while it trains, then the other while it starts again."""
    arguments = as_arguments(longer | {"out_dir": "killed"})
    agent = torchrun("train", *arguments, cwd=tmp_path, settings=[*TWO, "--max-restarts=2"])
    record = tmp_path / "killed" / "metrics.jsonl"
    wait_until(lambda: length_of(record) > 2500)
    first = ranks_of(agent)
    first[1].kill()
    wait_until(lambda: len(ranks_of(agent)) == 2 and not set(ranks_of(agent)) & set(first))
    ranks_of(agent)[0].kill()
    assert agent.wait(timeout=120) == 0, said(tmp_path)[-3000:]
    assert [r["kind"] for r in read_metrics(record)].count("resume") == 1
    (tmp_path / "plan.json").write_text(
        json.dumps([{"size": 2, "runs": [{"out": "whole", "options": longer}]}])
    )
    driver = str(Path(__file__).with_name("ranks_driver.py"))
    subprocess.run([sys.executable, driver, "plan.json"], cwd=tmp_path, check=True, timeout=120)
    assert_same_weights(tmp_path / "killed", tmp_path / "whole")
    assert story(tmp_path / "killed") == story(tmp_path / "whole")


def test_a_failure_is_told_once_with_its_rank(tmp_path: Path, longer: dict[str, str]) -> None:
    """Both ranks fail on the missing dataset; and where one is killed, the other says which it was."""
    arguments = as_arguments(longer | {"max_iters": "100000", "out_dir": "run"})
    agent = torchrun("train", *arguments, "--dataset=nowhere", cwd=tmp_path, settings=TWO)
    assert agent.wait(timeout=60) == 1
    first = said(tmp_path)
    assert first.count("error:") == 1
    assert first.count("error: rank ") == 1
    assert "of 2 on " in first
    agent = torchrun("train", *arguments, cwd=tmp_path, settings=TWO)
    wait_until(lambda: length_of(tmp_path / "run" / "metrics.jsonl") > 2000)
    ranks_of(agent)[1].kill()
    assert agent.wait(timeout=60) == 1
    then = said(tmp_path)[len(first) :]
    assert then.count("error:") == 1
    assert "error: rank 1 of 2 on " in then
    assert "ended without a word" in then
    assert "Traceback" not in then.split("ChildFailedError")[0].split("torch/distributed/elastic")[0]

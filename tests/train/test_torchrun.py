"""Real `torchrun`: a killed rank and its restart, one message for a failure, a stop that saves.

`benchmarks/ranks.py` is the full form: twenty kills, and two hosts with a cut link.
"""

import signal
from pathlib import Path

import pytest

from gptwright.record.metrics import read_metrics
from gptwright.record.run import RunFolder
from tests.conftest import as_arguments
from tests.train.conftest import assert_same_weights, story
from tests.train.torchrun import length_of, ranks_of, said, torchrun, wait_until

TWO = ["--standalone", "--nproc_per_node=2"]

pytestmark = pytest.mark.slow


@pytest.fixture
def longer(tiny: dict[str, str]) -> list[str]:
    """A run of some seconds, with a checkpoint every ten steps."""
    return as_arguments(
        tiny
        | {
            "max_iters": "600", "lr_decay_iters": "600", "eval_interval": "200", "checkpoint_interval": "10",
            "dropout": "0.1", "log_interval": "10",
        }
    )  # fmt: skip


def test_a_killed_rank_is_restarted_and_the_run_ends_in_the_right_weights(
    tmp_path: Path, longer: list[str]
) -> None:
    """Killed once while it trains; then stopped by SIGTERM, and the same command with `auto` ends it."""
    settings = [*TWO, "--max-restarts=2"]
    agent = torchrun("train", *longer, "--out_dir=killed", cwd=tmp_path, settings=settings)
    record = tmp_path / "killed" / "metrics.jsonl"
    wait_until(lambda: length_of(record) > 3000)
    ranks_of(agent)[1].kill()
    wait_until(lambda: "iter " in said(tmp_path).partition("Resuming training from step")[2])
    agent.send_signal(signal.SIGTERM)
    agent.wait(timeout=60)
    assert RunFolder(tmp_path / "killed").pointed("last") is not None
    assert "stopped and saved at step" in said(tmp_path)
    again = torchrun("train", *longer, "--out_dir=killed", "--init_from=auto", cwd=tmp_path, settings=TWO)
    assert again.wait(timeout=120) == 0, said(tmp_path)[-3000:]
    whole = torchrun("train", *longer, "--out_dir=whole", cwd=tmp_path, settings=TWO)
    assert whole.wait(timeout=120) == 0, said(tmp_path)[-3000:]
    assert_same_weights(tmp_path / "killed", tmp_path / "whole")
    assert story(tmp_path / "killed") == story(tmp_path / "whole")
    assert read_metrics(record)[-1]["state"] == "finished"


def test_a_failure_is_told_once_with_its_rank(tmp_path: Path, longer: list[str]) -> None:
    """Both ranks fail on the missing dataset; and where one is killed, the other says which it was."""
    agent = torchrun("train", *longer, "--dataset=nowhere", cwd=tmp_path, settings=TWO)
    assert agent.wait(timeout=60) == 1
    first = said(tmp_path)
    assert first.count("error:") == 1
    assert first.count("error: rank ") == 1
    assert "of 2 on " in first
    agent = torchrun("train", *longer, "--max_iters=100000", "--out_dir=run", cwd=tmp_path, settings=TWO)
    wait_until(lambda: length_of(tmp_path / "run" / "metrics.jsonl") > 2000)
    ranks_of(agent)[1].kill()
    assert agent.wait(timeout=60) == 1
    then = said(tmp_path)[len(first) :]
    assert then.count("error:") == 1
    assert "error: rank 1 of 2 on " in then
    assert "ended without a word" in then
    assert "Traceback" not in then.split("ChildFailedError")[0].split("torch/distributed/elastic")[0]

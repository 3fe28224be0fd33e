"""Real `torchrun`: one launch, in which ranks fail, are killed and are started again.

`benchmarks/ranks.py` is the full form: twenty kills, and two hosts with a cut cable.
"""

from pathlib import Path

import pytest

from gptwright.record.metrics import read_metrics
from tests.conftest import as_arguments
from tests.train.conftest import assert_same_weights, story
from tests.train.torchrun import length_of, ranks_of, said, torchrun, wait_until
from tests.train.worlds import Worlds, long_run

SETTINGS = ["--standalone", "--nproc_per_node=2", "--max-restarts=2"]


@pytest.mark.slow
def test_failures_are_told_once_and_the_run_ends_in_the_right_weights(
    tmp_path: Path, worlds: Worlds, dataset: Path
) -> None:
    """Both ranks miss the dataset; it appears, and one is killed while it trains; the third start goes on."""
    arguments = as_arguments(long_run(dataset) | {"dataset": "later", "out_dir": "killed"})
    agent = torchrun("train", *arguments, cwd=tmp_path, settings=SETTINGS)
    wait_until(lambda: "error:" in said(tmp_path))
    (tmp_path / "later").symlink_to(dataset)
    record = tmp_path / "killed" / "metrics.jsonl"
    wait_until(lambda: length_of(record) > 2500)
    missing = said(tmp_path)
    assert missing.count("error:") == missing.count("error: rank ") == 1
    assert "of 2 on " in missing
    ranks_of(agent)[1].kill()
    assert agent.wait(timeout=120) == 0, said(tmp_path)[-3000:]
    then = said(tmp_path)[len(missing) :]
    assert then.count("error:") == 1
    assert "error: rank 1 of 2 on " in then
    assert "ended without a word" in then
    assert "Traceback" not in then
    assert [r["kind"] for r in read_metrics(record)].count("resume") == 1
    assert_same_weights(tmp_path / "killed", worlds.folder / "whole")
    assert story(tmp_path / "killed") == story(worlds.folder / "whole")

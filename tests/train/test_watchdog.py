"""A step that hangs is reported with all stacks, while it hangs."""

import queue
import time
from pathlib import Path

import pytest

from gptwright.config.load import load_config
from gptwright.record.metrics import read_metrics
from gptwright.train.run import prepare_new, train_prepared
from gptwright.train.watchdog import FIRST_STEP_PATIENCE, Watchdog
from tests.train.conftest import Watcher


def test_a_stalled_step_is_told_once_and_the_run_goes_on(tmp_path: Path, tiny: dict[str, str]) -> None:
    out = tmp_path / "run"
    options = tiny | {"stall_seconds": "1", "out_dir": str(out)}
    prepared = prepare_new(load_config([], options))

    class Sleeper(Watcher):
        def stepped(self, step: int) -> None:
            if step == 5:
                time.sleep(3)

    sleeper = Sleeper()
    assert train_prepared(prepared, sleeper).ending == "finished"
    told = [r for r in read_metrics(out / "metrics.jsonl") if r["kind"] == "guard"]
    # On a busy machine a step of its own may take a second too.
    assert {g["what"] for g in told} == {"stalled"}
    assert [g["step"] for g in told].count(6) == 1
    stacks = (out / "stalls.txt").read_text("utf-8")
    assert "in stepped" in stacks
    assert "test_watchdog.py" in stacks


def test_the_first_step_has_more_patience(tmp_path: Path) -> None:
    told: queue.Queue[float] = queue.Queue()
    with Watchdog(0.2, stacks=tmp_path / "stacks", stalled=told.put) as dog:
        assert told.get(timeout=60) > 0.2 * FIRST_STEP_PATIENCE
        with pytest.raises(queue.Empty):
            told.get(timeout=0.5)
        dog.alive()
        assert told.get(timeout=60) > 0.2


@pytest.mark.parametrize("seconds", [0.0])
def test_zero_watches_nothing(tmp_path: Path, seconds: float) -> None:
    told: list[float] = []
    with Watchdog(seconds, stacks=tmp_path / "stacks", stalled=told.append):
        time.sleep(0.1)
    assert told == []

"""The stated rule: when a run counts as stalled, and what a foreign log can tell."""

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from gptwright.record.lock import process_of
from gptwright.record.progress import RunProgress
from gptwright.report.live.states import (
    FIRST_PATIENCE,
    FOREIGN_PATIENCE,
    SHORTEST_PATIENCE,
    foreign_state,
    is_alive,
    patience_of,
    state_of,
)


def recorded(*times: float, ending: str | None = None) -> RunProgress:
    progress = RunProgress()
    progress.add({"kind": "start", "step": 0, "time": times[0]})
    for step, time in enumerate(times[1:]):
        progress.add({"kind": "train", "step": step, "time": time})
    if ending:
        progress.add({"kind": "end", "state": ending, "step": 3, "time": times[-1], "reason": "loss is nan"})
    return progress


@pytest.mark.parametrize(
    ("times", "patience"),
    [
        ([0.0], FIRST_PATIENCE),
        ([0.0, 1.0], FIRST_PATIENCE),
        # Quick steps: nobody is accused within ten seconds.
        ([0.1 * n for n in range(100)], SHORTEST_PATIENCE),
        # A line a minute: ten of them.
        ([60.0 * n for n in range(20)], 600.0),
        # A line a second and an evaluation of a minute: three of those.
        ([*range(20), *range(80, 100)], 183.0),
    ],
)
def test_patience_follows_from_the_records_own_rhythm(times: list[float], patience: float) -> None:
    assert patience_of(recorded(*times)) == pytest.approx(patience)


def test_a_run_is_running_until_its_patience_is_over() -> None:
    progress = recorded(*range(100))
    assert state_of(progress, changed=99.0, now=108.9, process=None).name == "running"
    late = state_of(progress, changed=99.0, now=109.1, process=None)
    assert late.name == "stalled"
    assert "after 10.0 s without one" in late.reason
    # A machine whose clock lags wrote the record; the file system's clock says that it is fresh.
    assert state_of(progress, changed=1000.0, now=1001.0, process=None).name == "running"


@pytest.mark.parametrize("ending", ["finished", "stopped", "failed"])
def test_the_record_says_how_a_run_ended(ending: str) -> None:
    state = state_of(recorded(0.0, 1.0, 2.0, ending=ending), changed=2.0, now=1e9, process=None)
    assert (state.name, state.reason) == (ending, "loss is nan")


def test_a_run_whose_process_is_gone_is_stalled_at_once(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert process.stdin is not None
    lock = tmp_path / "run.lock"
    lock.write_text(json.dumps({"process": process.pid, "machine": platform.node()}))
    assert process_of(tmp_path) == process.pid
    progress = recorded(*range(100))
    assert state_of(progress, changed=99.0, now=99.5, process=process.pid).name == "running"
    process.stdin.close()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    # It has ended and its parent has not looked yet: a zombie is no process that trains.
    assert not is_alive(process.pid)
    process.wait()
    gone = state_of(progress, changed=99.0, now=99.5, process=process_of(tmp_path))
    assert gone.name == "stalled"
    assert f"its process {process.pid} is gone" in gone.reason


def test_a_foreign_log_is_running_while_it_grows() -> None:
    def name(step: float | None, planned: float | None, quiet: float) -> str:
        return foreign_state(last_step=step, planned_steps=planned, changed=1000, now=1000 + quiet).name

    assert name(None, None, FOREIGN_PATIENCE - 1) == "running"
    assert name(500, 1000, FOREIGN_PATIENCE - 1) == "running"
    assert name(500, 1000, FOREIGN_PATIENCE + 1) == "quiet"
    assert name(1000, 1000, 1) == "finished"

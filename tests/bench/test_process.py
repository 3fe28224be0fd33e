"""A trainer as a process: its lines, its time, its memory, and how it fails."""

import contextlib
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from gptwright.bench.process import run_trainer, step_times, watch
from gptwright.errors import RunFailedError
from tests.processes import have_ended, wait_until

LINES = [
    "number of parameters: 0.80M\n",
    "step 0: train loss 4.17, val loss 4.18\n",
    "iter 0: loss 4.1764, time 900.00ms, mfu -100.00%\n",
    "iter 1: loss 4.0, time 30.00ms, mfu 1.00%\n",
    "iter 2: loss 3.9, time 20.00ms, mfu 1.00%\n",
    "step 3: train loss 3.8, val loss 3.85 (standard errors 0.01, 0.01)\n",
    "iter 3: loss 3.8, time 700.00ms, mfu 1.00%\n",
    "iter 4: loss 3.7, time 10.00ms, mfu 1.00%\n",
]


def script(folder: Path, text: str) -> list[str]:
    (folder / "trainer.py").write_text(text, encoding="utf-8")
    return [sys.executable, "trainer.py"]


def test_steps_with_an_evaluation_and_the_first_ones_do_not_count() -> None:
    assert step_times(LINES, 0) == pytest.approx([0.03, 0.02, 0.01])
    assert step_times(LINES, 2) == pytest.approx([0.02, 0.01])


def test_a_whole_process_is_timed_and_weighed(tmp_path: Path) -> None:
    command = script(
        tmp_path,
        "import os, time\nheld = bytearray(os.urandom(200_000_000))\ntime.sleep(0.3)\n"
        f"print({''.join(LINES)!r}, end='')\nprint(len(held))\n",
    )
    done = run_trainer(command, folder=tmp_path, warm_up=1)
    assert 0.3 < done.wall_seconds < 20
    assert done.step_seconds == pytest.approx(0.02)
    assert done.val_loss == 3.85
    assert 200_000_000 < done.peak_bytes < 600_000_000


# Its helper holds the pipe as well, as those of a compiler do.
WITH_A_HELPER = """
import subprocess, sys, time
print(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]).pid)
for step in range(100):
    time.sleep(0.01)
    print(f"iter {step}: loss 3.0, time 10.00ms, mfu 1.00%")
time.sleep(60)
"""


@pytest.mark.parametrize(("end", "out_of_time"), [({"last_step": 20}, False), ({"seconds": 3.0}, True)])
def test_a_process_ends_with_all_its_helpers_where_nothing_more_is_wanted(
    tmp_path: Path, end: dict[str, Any], out_of_time: bool
) -> None:
    looks = iter(range(10**6))
    done = watch(script(tmp_path, WITH_A_HELPER), folder=tmp_path, device_memory=looks.__next__, **end)
    assert done.wall_seconds < 20
    assert done.out_of_time == out_of_time
    assert done.status != 0
    assert done.device_peak_bytes is not None
    assert done.device_peak_bytes > 0
    if not out_of_time:
        assert done.lines[-1][1].startswith("iter 20:")
        assert 0.2 < done.lines[-1][0] <= done.wall_seconds
    helper = int(done.lines[0][1])
    with contextlib.suppress(psutil.NoSuchProcess):
        wait_until(lambda: have_ended([psutil.Process(helper)]), 10)


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("raise SystemExit('no data here')", "no data here"),
        ("print('step 0: train loss 4.0, val loss 4.0')", "0 timed steps and 1 evaluations"),
        ("pass", "it printed nothing"),
    ],
)
def test_a_trainer_that_fails_says_what_it_said(tmp_path: Path, text: str, seen: str) -> None:
    with pytest.raises(RunFailedError, match=seen):
        run_trainer(script(tmp_path, text), folder=tmp_path, warm_up=0)

"""A trainer as a process: its lines, its time, its memory, and how it fails."""

import sys
from pathlib import Path

import pytest

from gptwright.bench.process import run_trainer, step_times
from gptwright.errors import RunFailedError

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

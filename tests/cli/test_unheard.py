"""A run whose screen goes: a closed terminal saves it, a pager that is left changes nothing."""

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gptwright.record.run import RunFolder
from tests.conftest import as_arguments
from tests.processes import PATIENCE_SECONDS, wait_until

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals and pipes")

# Makes a terminal the one that a command is at, which is told when it is closed.
AS_A_LOGIN = "import os, sys; os.login_tty(int(sys.argv[1])); os.execv(sys.argv[2], sys.argv[2:])"


def command(tiny: dict[str, str], out: Path, *, steps: int) -> list[str]:
    length = {"max_iters": str(steps), "lr_decay_iters": str(steps), "eval_interval": "1000000"}
    options = as_arguments(tiny | length | {"out_dir": str(out)})
    return [sys.executable, "-m", "gptwright", "train", *options]


def log_of(out: Path) -> list[str]:
    path = RunFolder(out).log_path
    return path.read_text().splitlines() if path.is_file() else []


def is_at(out: Path, step: int) -> bool:
    return any(line.startswith(f"iter {step}:") for line in log_of(out))


def test_a_closed_terminal_lets_the_run_save_itself(tmp_path: Path, tiny: dict[str, str]) -> None:
    out = tmp_path / "run"
    terminal, inside = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", AS_A_LOGIN, str(inside), *command(tiny, out, steps=1_000_000)],
        pass_fds=[inside],
        env={name: value for name, value in os.environ.items() if name != "CI"} | {"TERM": "xterm"},
    )
    os.close(inside)
    deadline = time.monotonic() + PATIENCE_SECONDS
    shown = b""
    # A terminal that nobody reads would fill up and hold the run.
    while not is_at(out, 10):
        assert time.monotonic() < deadline, shown
        if select.select([terminal], [], [], 0.1)[0]:
            shown += os.read(terminal, 65536)
    assert b"\x1b[" in shown
    os.close(terminal)
    assert process.wait(PATIENCE_SECONDS) == 0
    stopped = log_of(out)[-1]
    assert stopped.startswith("stopped at step ")
    assert RunFolder(out).checkpoint_names() == [f"step-{int(stopped.split()[-1]):08d}"]


def test_a_run_that_nobody_reads_goes_on_and_under_nohup_without_a_terminal_too(
    tmp_path: Path, tiny: dict[str, str]
) -> None:
    out = tmp_path / "run"
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        process = subprocess.Popen(
            command(tiny, out, steps=150), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
    finally:
        signal.signal(signal.SIGHUP, before)
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline()
    process.stdout.close()
    wait_until(lambda: is_at(out, 20))
    process.send_signal(signal.SIGHUP)
    assert process.wait(PATIENCE_SECONDS) == 0
    assert process.stderr.read() == ""
    process.stderr.close()
    assert log_of(out)[-1] == "finished at step 150"

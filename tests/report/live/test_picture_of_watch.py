"""The picture of the live page in README and docs, taken of a real run while it trains.

`make pictures` runs it with GPTWRIGHT_PICTURED (run folders, of whose folder the page is) and
GPTWRIGHT_PICTURES (where the pictures go); the test suite takes it of a small run.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from tests.conftest import TINY, as_arguments
from tests.report.live.conftest import OpenTab, Serve

LARGEST = 300_000
# Enough of the curve to be worth a picture, and to be one.
SHARE, STEPS = 0.4, 60


def start_training(folder: Path, dataset: Path, *, preset: list[str]) -> "subprocess.Popen[bytes]":
    """The small run does not end by itself: it must still train when its picture is taken."""
    endless = {"max_iters": "1000000", "lr_decay_iters": "1000000", "eval_interval": "40"}
    options = {} if preset else TINY | endless
    arguments = as_arguments(options | {"dataset": str(dataset), "out_dir": str(folder)})
    return subprocess.Popen(
        [sys.executable, "-m", "gptwright", "train", *preset, "--plain", *arguments],
        stdout=subprocess.DEVNULL,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )


@contextmanager
def mostly_held(process: "subprocess.Popen[bytes]") -> Iterator[None]:
    """Lets a training go on for a tenth of the time: it still runs, and the browser has the core."""
    over = threading.Event()

    def hold() -> None:
        while not over.wait(0.1):
            process.send_signal(signal.SIGSTOP)
            over.wait(0.9)
            process.send_signal(signal.SIGCONT)

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="a process is held by a signal")
def test_the_picture_shows_a_run_that_trains(
    serve: Serve, open_tab: OpenTab, dataset: Path, tmp_path: Path
) -> None:
    pictured = os.environ.get("GPTWRIGHT_PICTURED", "").split(":")[0]
    folder = Path(pictured).parent if pictured else tmp_path / "runs"
    pictures = Path(os.environ.get("GPTWRIGHT_PICTURES") or tmp_path / "pictures")
    pictures.mkdir(parents=True, exist_ok=True)
    if pictured:
        shutil.rmtree(folder / "still-training", ignore_errors=True)
        corpus = next(folder.glob("*_char"))
        training = start_training(folder / "still-training", corpus, preset=["demo"])
    else:
        training = start_training(folder / "still-training", dataset, preset=[])
    try:
        log = folder / "still-training" / "metrics.jsonl"
        while not log.exists() or not worth_a_picture(log, whole=bool(pictured)):
            assert training.poll() is None
            time.sleep(0.3)
        server = serve(folder)
        # What is held has steps that waited, which README's picture must not show.
        with nullcontext() if pictured else mostly_held(training):
            for name, width, scheme in (("watch", 1280, "light"), ("watch-phone", 390, "dark")):
                page = open_tab(server, "#run=still-training", width=width, scheme=scheme).page
                page.wait_for_selector("#run-findings *", timeout=60_000)
                page.wait_for_selector("#run-charts .plot")
                assert page.inner_text("#run-state") == "running"
                page.screenshot(path=pictures / f"{name}.png")
                assert 10_000 < (pictures / f"{name}.png").stat().st_size < LARGEST
    finally:
        training.terminate()
        training.wait(timeout=60)


def worth_a_picture(log: Path, *, whole: bool) -> bool:
    text = log.read_text("utf-8")
    steps = re.findall(r'"kind": "train".*?"step": (\d+)', text)
    planned = re.search(r'"max_iters": (\d+)', text)
    enough = SHARE * int(planned[1]) if whole and planned else STEPS
    return bool(steps) and int(steps[-1]) >= enough

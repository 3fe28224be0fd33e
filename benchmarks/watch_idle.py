"""What `gptwright watch` takes over 200 runs: memory and share of a core, with and without an open page.

    python benchmarks/watch_idle.py [--runs N] [--lines N] [--seconds N] [--out FILE]

The folder holds finished runs of ours, as long as a night's run logs, and one log of another trainer in ten.
Measured are the server and its processes together: until everything is read and diagnosed once, then for a
while in which nothing happens with a page open on the list and on one run, then without any page.
Fails if it takes more than 300 MB or 5 % of a core when idle.
"""

import argparse
import json
import math
import platform
import random
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

import psutil

from gptwright.hardware.cpu import cpu_name

MOST_BYTES = 300e6
MOST_SHARE = 0.05


def write_run(folder: Path, lines: int, rng: random.Random) -> None:
    """A finished run's record."""
    folder.mkdir(parents=True)
    interval = 10
    with (folder / "metrics.jsonl").open("w") as file:

        def put(kind: str, step: int, **fields: Any) -> None:
            record = {"v": 1, "kind": kind, "time": 1.7e9 + step, "step": step, **fields}
            file.write(json.dumps(record) + "\n")

        total = lines * interval
        put("start", 0, max_iters=total, vocab_size=65, parameters_nanogpt=10_646_784, tokens_per_step=16384)
        for step in range(0, total, interval):
            loss = 1.3 + 2.9 / (1 + step / 400) ** 0.8 + rng.gauss(0, 0.03)
            if step % (50 * interval) == 0:
                errors = {"train_loss_standard_error": 0.01, "val_loss_standard_error": 0.01}
                put("eval", step, train_loss=loss, val_loss=loss + 0.04, seconds=2.0, **errors)
            rate = 1e-3 * 0.5 * (1 + math.cos(math.pi * step / total))
            speed = {"seconds": 0.05, "tokens_per_second": 327680.0, "mfu": 0.31}
            put("train", step, loss=loss, loss_mean=loss, lr=rate, grad_norm=0.5, **speed)
        put("end", total, state="finished", peak_memory_bytes=None)
    (folder / "config.toml").write_text(f"max_iters = {total}\neval_interval = {50 * interval}\n")


def write_log(folder: Path, lines: int, rng: random.Random) -> None:
    """A log as nanoGPT prints it."""
    folder.mkdir(parents=True)
    losses = [2 + 2 / (1 + step / 40) + rng.gauss(0, 0.02) for step in range(lines)]
    text = "".join(
        f"iter {step * 10}: loss {loss:.4f}, time 120.00ms, mfu 12.00%\n" for step, loss in enumerate(losses)
    )
    (folder / "log.txt").write_text(text)


class Page(threading.Thread):
    """A page that listens to the events and counts them."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self.answer = urllib.request.urlopen(url)
        self.verdicts: set[str] = set()
        self.bytes = 0

    def run(self) -> None:
        for line in self.answer:
            self.bytes += len(line)
            if line.startswith(b"data: ") and b'"runs"' in line:
                document = json.loads(line.removeprefix(b"data: "))
                for run in document["runs"]:
                    if isinstance(run, dict) and (run.get("verdict") or run.get("problem")):
                        self.verdicts.add(run["id"])

    def close(self) -> None:
        self.answer.close()


def family(process: psutil.Process) -> list[psutil.Process]:
    return [process, *process.children(recursive=True)]


def memory(process: psutil.Process) -> int:
    return sum(one.memory_info().rss for one in family(process))


def cpu_seconds(process: psutil.Process) -> float:
    return sum(one.cpu_times().user + one.cpu_times().system for one in family(process))


def idle(process: psutil.Process, seconds: float) -> dict[str, float]:
    """Share of a core and largest memory over a while."""
    began, before, most = time.monotonic(), cpu_seconds(process), 0
    while time.monotonic() - began < seconds:
        most = max(most, memory(process))
        time.sleep(0.5)
    passed = time.monotonic() - began
    return {"share_of_a_core": (cpu_seconds(process) - before) / passed, "bytes": most}


def measure(folder: Path, runs: int, seconds: float) -> dict[str, Any]:
    command = [sys.executable, "-m", "gptwright", "watch", str(folder), "--port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        text = ""
        while not text.endswith("}\n"):
            text += server.stdout.readline()
        url = json.loads(text)["url"]
        process = psutil.Process(server.pid)
        started = memory(process)
        began, most = time.monotonic(), 0
        page = Page(url + "events")
        page.start()
        while len(page.verdicts) < runs:
            most = max(most, memory(process))
            time.sleep(0.2)
        reading = time.monotonic() - began
        # The worker of diagnoses leaves after twenty seconds without work.
        time.sleep(25)
        with_list = idle(process, seconds)
        other = Page(url + "events?run=run-003")
        other.start()
        time.sleep(30)
        with_run = idle(process, seconds)
        page.close()
        other.close()
        time.sleep(2)
        without = idle(process, seconds)
        server.terminate()
    return {
        "started_bytes": started,
        "read_and_diagnosed_seconds": reading,
        "while_diagnosing_bytes": most,
        "idle_with_the_list_open": with_list,
        "idle_with_a_run_open": with_run,
        "idle_without_a_page": without,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--lines", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rng = random.Random(7)
    with tempfile.TemporaryDirectory() as name:
        for number in range(options.runs):
            write = write_log if number % 10 == 0 else write_run
            write(Path(name) / f"run-{number:03d}", options.lines, rng)
        figures = measure(Path(name), options.runs, options.seconds)
    result = {
        "runs": options.runs,
        "lines_a_run": options.lines,
        "python": platform.python_version(),
        "processor": cpu_name(),
        **figures,
    }
    text = json.dumps(result, indent=2) + "\n"
    print(text, end="")
    if options.out is not None:
        options.out.write_text(text, encoding="utf-8")
    for state in ("idle_with_the_list_open", "idle_with_a_run_open", "idle_without_a_page"):
        if figures[state]["bytes"] > MOST_BYTES or figures[state]["share_of_a_core"] > MOST_SHARE:
            sys.exit(f"{state}: more than {MOST_BYTES / 1e6:.0f} MB or {MOST_SHARE:.0%} of a core")


if __name__ == "__main__":
    main()

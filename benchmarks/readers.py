"""How long a log of a million lines takes to read, and how much memory, for each trainer's kind of line.

    python benchmarks/readers.py --out readers.json

Each log is written to a temporary file and read in a process of its own, so that the memory is that of the
whole process. `seconds` is the time of reading alone, by the clock; `cpu_seconds` is what the process
computed meanwhile, which is the better figure on a machine that has other things to do.
"""

import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
from benchmarks.result import hand_over, parser

import gptwright
from gptwright.hardware.cpu import cpu_name, usable_cores

LINES = 1_000_000
# The child reads one log and says what it cost.
CHILD = """
import json, resource, sys, time
from pathlib import Path
from gptwright.record.readers import read_log
clock, cpu = time.perf_counter(), time.process_time()
evidence = read_log(Path(sys.argv[1]))
seconds, cpu_seconds = time.perf_counter() - clock, time.process_time() - cpu
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024**2 if sys.platform == "darwin" else 1024)
rows = len(evidence.train) + len(evidence.evals)
print(json.dumps([evidence.format.name, evidence.lines_read, rows, seconds, cpu_seconds, peak]))
"""


def nanogpt(prefix: str = "") -> Iterator[str]:
    """One evaluation and one checkpoint every 50 lines."""
    for n in range(LINES):
        if n % 50 == 0:
            yield f"{prefix}step {10 * n}: train loss {3 + n % 97 / 97:.4f}, val loss {3 + n % 89 / 89:.4f}"
        elif n % 50 == 1:
            yield f"{prefix}saving checkpoint to out"
        else:
            loss, ms = 3 + n % 97 / 97, 204 + n % 13 / 7
            yield f"{prefix}iter {10 * n}: loss {loss:.4f}, time {ms:.2f}ms, mfu 21.37%"


def stamped() -> Iterator[str]:
    """nanoGPT's lines behind a time."""
    return nanogpt("[2023-03-17 09:12:05] ")


def build_nanogpt() -> Iterator[str]:
    """Numbers with exponents."""
    for n in range(LINES):
        yield (
            f"step {n:5d} | loss: {3 + n % 97 / 97:.6f} | lr {6e-4 - n * 1e-10:.4e} | norm: {n % 7 / 7:.4f}"
            f" | dt: {5012 + n % 13 / 7:.2f}ms | tok/sec: {104599.13 + n % 5:.2f}"
        )


def torchtitan() -> Iterator[str]:
    """Colours, times, thousands."""
    for n in range(LINES):
        yield (
            f"[titan] 2025-05-02 08:00:{n % 60:02d},000 - root - INFO - \x1b[31mstep: {n:2}"
            f"  \x1b[32mloss: {3 + n % 97 / 97:8.5f}  \x1b[38;2;180;60;0mgrad_norm:  1.{n % 9999:04d}"
            f"  \x1b[38;2;54;234;195mmemory: 41.80GiB(52.74%)  \x1b[34mtps: {105000 + n % 99:,}"
            "  \x1b[36mtflops: 102.18  \x1b[35mmfu: 32.75%\x1b[39m"
        )


def hugging_face() -> Iterator[str]:
    """Bars, carriage returns and dicts."""
    for n in range(LINES):
        yield (
            f"\r{n % 100:3d}%|###   | {n + 1}/{LINES} [00:07<05:52,  1.39it/s]\r          \r"
            f"{{'loss': {3 + n % 97 / 97:.4f}, 'grad_norm': 1.{n % 999}, 'learning_rate': 4.9e-05,"
            " 'epoch': 0.12}"
        )


LOGS: Mapping[str, Callable[[], Iterator[str]]] = {
    "nanoGPT": nanogpt,
    "nanoGPT with times": stamped,
    "build-nanogpt": build_nanogpt,
    "torchtitan": torchtitan,
    "Hugging Face Trainer": hugging_face,
}


def main() -> None:
    """Writes, reads, reports."""
    arguments = parser(__doc__)
    arguments.add_argument(
        "--only", choices=sorted(LOGS), action="append", help="this log alone; may be repeated"
    )
    options = arguments.parse_args()
    rows = [measured(name, write) for name, write in LOGS.items() if not options.only or name in options.only]
    report = {
        "schema": "gptwright.benchmark.readers/1",
        "machine": {
            "processor": cpu_name(),
            "cores": usable_cores(),
            "load_average_at_end": os.getloadavg() if hasattr(os, "getloadavg") else None,
            "platform": platform.platform(),
            "python": platform.python_version(),
            "numpy": np.__version__,
            "gptwright": gptwright.__version__,
        },
        "rows": rows,
    }
    hand_over(report, options.out)


def measured(name: str, write: Callable[[], Iterator[str]]) -> dict[str, object]:
    """The cost of one log."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.txt"
        with path.open("w", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in write())
        done = subprocess.run(
            [sys.executable, "-c", CHILD, str(path)], capture_output=True, text=True, check=True
        )
        size = path.stat().st_size
    read_as, lines, rows, seconds, cpu_seconds, peak = json.loads(done.stdout)
    return {
        "log": name,
        "read_as": read_as,
        "lines": lines,
        "megabytes": round(size / 1e6, 1),
        "rows": rows,
        "seconds": round(seconds, 2),
        "cpu_seconds": round(cpu_seconds, 2),
        "peak_megabytes": round(peak, 1),
    }


if __name__ == "__main__":
    main()

"""Resident memory where it must not grow: a text file of one endless line, and training over a large dataset.

    python -m benchmarks.resident_memory --out benchmarks/results/resident-memory-MACHINE.json

A file of 1 GB without a line end is prepared as bytes, one id each; they are a dataset of 2 GB, over which a
tiny model trains for 2,000 steps in each sampling. The batches are small and many: the system maps 64 KiB
around each window that is read, so 128,000 windows would be the whole dataset several times. Every process is
looked at five times a second, its workers included, from outside.
"""

import os
import platform
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from benchmarks.result import hand_over, parser

import gptwright
from gptwright.hardware.cpu import cpu_name, usable_cores

TINY = {
    "n_layer": 1, "n_head": 1, "n_embd": 32, "block_size": 64, "batch_size": 64,
    "gradient_accumulation_steps": 1, "max_iters": 2000, "lr_decay_iters": 2000, "warmup_iters": 100,
    "eval_interval": 1000, "eval_iters": 10, "log_interval": 100, "device": "cpu", "compile": False,
}  # fmt: skip
# A run's time in so many parts, to see whether memory grows.
PARTS = 8


def main() -> None:
    """Makes the file, watches the processes, reports."""
    arguments = parser(__doc__)
    arguments.add_argument("--bytes", type=float, default=1e9, help="size of the file")
    arguments.add_argument("--folder", type=Path, help="where to work; some 6 bytes a byte of the file")
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        size = write_one_line(folder / "line.txt", int(options.bytes))
        report = {
            "schema": "gptwright.benchmark.resident-memory/1",
            "gptwright": gptwright.__version__,
            "processor": cpu_name(),
            "cores": usable_cores(),
            "platform": platform.platform(),
            "load_average": os.getloadavg() if hasattr(os, "getloadavg") else None,
            "file_bytes": size,
            "prepare": prepare(folder),
            "train": {mode: train(folder, mode) for mode in ("epoch", "random")},
        }
    hand_over(report, options.out)


def write_one_line(path: Path, size: int) -> int:
    """Random words with spaces between them and no line end."""
    rng = np.random.default_rng(1)
    lengths = rng.integers(2, 10, size=20_000)
    words = [rng.integers(97, 123, size=length, dtype=np.uint8).tobytes() for length in lengths]
    with path.open("wb") as file:
        while file.tell() < size:
            file.write(b"".join(words[index] + b" " for index in rng.integers(0, len(words), 100_000)))
        file.truncate(size)
    return size


def prepare(folder: Path) -> dict[str, Any]:
    """Prepares the file, with as many workers as cores."""
    out = folder / "byte"
    found = watched(["prepare", str(folder / "line.txt"), "--tokenizer", "byte", "--out", str(out)])
    return (
        found
        | {"workers": usable_cores()}
        | {"dataset_bytes": sum(file.stat().st_size for file in out.glob("*.bin"))}
    )


def train(folder: Path, mode: str) -> dict[str, Any]:
    """Trains the tiny model over the bytes."""
    settings = TINY | {"dataset": folder / "byte", "out_dir": folder / mode, "sampling": mode}
    return watched(["train", *[f"--{name}={value}" for name, value in settings.items()], "--plain"])


def watched(command: list[str]) -> dict[str, Any]:
    """Runs a verb and says how long it took and how much memory its processes had."""
    begin = time.perf_counter()
    process = psutil.Popen([sys.executable, "-m", "gptwright", *command], stdout=subprocess.DEVNULL)
    seen: list[int] = []
    while process.poll() is None:
        seen.append(resident(process))
        time.sleep(0.2)
    if process.returncode:
        raise SystemExit(f"gptwright {' '.join(command)} ended with {process.returncode}")
    cuts = [len(seen) * part // PARTS for part in range(PARTS + 1)]
    return {
        "seconds": round(time.perf_counter() - begin, 1),
        "most_megabytes": round(max(seen) / 1e6),
        "most_megabytes_in_each_eighth": [
            round(max(seen[start : max(end, start + 1)]) / 1e6) for start, end in pairwise(cuts)
        ],
    }


def resident(process: psutil.Process) -> int:
    """Bytes of a process and its children; shared pages count in each."""
    total = 0
    try:
        for one in (process, *process.children(recursive=True)):
            total += one.memory_info().rss
    except psutil.NoSuchProcess:
        # It ended while it was looked at.
        return total
    return total


if __name__ == "__main__":
    main()

"""Trains small models on this CPU for a few steps and prints their speed beside the peak of those seconds.

    python benchmarks/cpu_speed.py [--dtype D] [--threads N] [--steps N] [--rounds N] [--dataset FOLDER]
        [--no-kernels] [SHAPE …]

The rows are what `src/gptwright/hardware/speeds.toml` holds of CPUs. With one thread steps count in
CPU time, so that other processes on the machine hardly disturb them; with more, threads wait for each other,
and only the wall clock on a quiet machine says something. The peak is the better one of before and after.

In float32 it is numpy's, which a plan measures too. In bfloat16 the peak is torch's in that dtype, as a run
measures it; numpy's float32 peak stands beside it, of which a plan takes the double.
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

WARM_UP_STEPS = 3

SHAPES: Mapping[str, Mapping[str, float]] = {
    "tiny": {"n_layer": 2, "n_head": 2, "n_embd": 64, "block_size": 64, "batch_size": 8},
    "readme-cpu": {"n_layer": 4, "n_head": 4, "n_embd": 128, "block_size": 64, "batch_size": 12},
    "tiny-bpe": {
        "n_layer": 4, "n_head": 4, "n_embd": 64, "block_size": 64, "batch_size": 8, "vocab_size": 50304
    },
    "medium": {"n_layer": 4, "n_head": 4, "n_embd": 256, "block_size": 128, "batch_size": 16},
    "medium-dropout": {
        "n_layer": 4, "n_head": 4, "n_embd": 256, "block_size": 128, "batch_size": 16, "dropout": 0.1
    },
    "long-dropout": {
        "n_layer": 4, "n_head": 4, "n_embd": 128, "block_size": 256, "batch_size": 8, "dropout": 0.2
    },
    "baby": {"n_layer": 6, "n_head": 6, "n_embd": 384, "block_size": 256, "batch_size": 16},
    "gpt2": {
        "n_layer": 12, "n_head": 12, "n_embd": 768, "block_size": 1024, "batch_size": 1, "vocab_size": 50304
    },
}  # fmt: skip


class EnoughError(Exception):
    """Enough steps were timed; a run that ends so writes no checkpoint."""


class Stopwatch:
    """Hears a run and notes the clock after every step."""

    def __init__(self, steps: int, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.steps = steps
        self.moments: list[float] = []

    def recorded(self, record: object) -> None:
        """A line of metrics was written."""

    def stepped(self, step: int) -> None:  # noqa: ARG002 - what a listener is told
        """Update `step` was made."""
        self.moments.append(self.clock())
        if len(self.moments) >= self.steps:
            raise EnoughError

    @property
    def seconds(self) -> float:
        """The median step after the warm-up."""
        gaps = [b - a for a, b in zip(self.moments, self.moments[1:], strict=False)]
        return statistics.median(gaps[WARM_UP_STEPS:])


def peaks_now(dtype: str, clock: Callable[[], float]) -> tuple[float, float]:
    """This CPU's rates in FLOP/s at this moment: in `dtype`, and numpy's in float32."""
    import torch

    from gptwright.hardware.cpu import measure_cpu_peak
    from gptwright.hardware.detect import find_device
    from gptwright.hardware.probe import measure_matmul_peak

    measure_cpu_peak.cache_clear()
    measure_matmul_peak.cache_clear()
    single = measure_cpu_peak(clock=clock)
    return single if dtype == "float32" else measure_matmul_peak(find_device("cpu"), torch.bfloat16), single


def measure(
    name: str, *, dtype: str, kernels: bool, dataset: Path, steps: int, threads: int
) -> dict[str, float | str]:
    """Trains one shape and says how fast, and the peak around it."""
    from gptwright.config.load import load_config
    from gptwright.hardware.cpu import cpu_name
    from gptwright.train.run import prepare_new, train_prepared

    shape = SHAPES[name]
    clock = time.process_time if threads == 1 else time.perf_counter
    before = peaks_now(dtype, clock)
    with tempfile.TemporaryDirectory() as place:
        options = {
            "dataset": str(dataset), "out_dir": f"{place}/run", "device": "cpu", "compile": "False",
            "dropout": "0.0", "bias": "False", "gradient_accumulation_steps": "1", "eval_iters": "1",
            "eval_interval": "1000000", "max_iters": str(steps + 10), "warmup_iters": "1",
            "dtype": dtype, "kernels": str(kernels),
        } | {key: str(value) for key, value in shape.items()}  # fmt: skip
        watch = Stopwatch(steps, clock)
        with contextlib.suppress(EnoughError):
            train_prepared(prepare_new(load_config([], options)), watch)
    peak, single = map(max, before, peaks_now(dtype, clock))
    tokens = int(shape["batch_size"] * shape["block_size"])
    return {
        "shape": name, "cpu": cpu_name(), "threads": threads, "dtype": dtype,
        "peak_gflops": round(peak / 1e9, 1), "float32_gflops": round(single / 1e9, 1),
        "milliseconds": round(watch.seconds * 1000, 2), "tokens_per_second": round(tokens / watch.seconds),
    }  # fmt: skip


def prepare_text(folder: Path) -> Path:
    """Characters of Python's standard library as a dataset."""
    out = folder / "data"
    command = [
        sys.executable,
        "-m",
        "gptwright",
        "prepare",
        "pystdlib",
        "--tokenizer=char",
        "--max-tokens=2000000",
    ]
    subprocess.run([*command, "--out", str(out)], check=True, capture_output=True)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("shapes", nargs="*", metavar="SHAPE", help=", ".join(SHAPES))
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--no-kernels", dest="kernels", action="store_false", help="by torch alone")
    parser.add_argument("--threads", type=int, default=0, help="0: as many as there are cores")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument(
        "--dataset", type=Path, help="a prepared one; default: characters of Python's library"
    )
    given = parser.parse_args()
    if given.threads:
        # Before numpy and torch are imported, which read them once.
        for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
            os.environ[variable] = str(given.threads)
    with tempfile.TemporaryDirectory() as place:
        dataset = given.dataset or prepare_text(Path(place))
        for _ in range(given.rounds):
            for name in given.shapes or SHAPES:
                row = measure(
                    name,
                    dtype=given.dtype,
                    kernels=given.kernels,
                    dataset=dataset,
                    steps=given.steps,
                    threads=given.threads,
                )
                print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()

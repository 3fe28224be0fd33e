"""Trains the same work with gptwright and with a checkout of nanoGPT, in turn, in one run.

    python benchmarks/against_nanogpt.py --nanogpt PATH [--workload NAME] [--rounds N] [--out FILE]

Both get the same dataset (made by `gptwright prepare`, which nanoGPT reads) and the same options; nanoGPT's
files are copied and run unchanged. Both print the same line shapes, so one parser reads both. Machines
drift, so the two alternate A B A B, and the figure to quote is the median of the ratios of neighbours.
"""

import argparse
import json
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from gptwright.hardware.detect import find_device

WARM_UP_STEPS = 20
DATASET = "benchmark"


@dataclass(frozen=True)
class Workload:
    """What both trainers do: the tokenizer of the data, and options by nanoGPT's names."""

    tokenizer: str
    options: dict[str, object]


# nanoGPT's README command for a laptop; its two config files, shortened to what shows the speed.
CHARACTERS = {"beta2": 0.99, "warmup_iters": 100, "learning_rate": 1e-3, "min_lr": 1e-4, "eval_iters": 20}
ONE_MICRO_BATCH = {"gradient_accumulation_steps": 1, "eval_interval": 250}
SMALL = {"block_size": 64, "batch_size": 12, "n_layer": 4, "n_head": 4, "n_embd": 128, "dropout": 0.0}
BABY = {"block_size": 256, "batch_size": 64, "n_layer": 6, "n_head": 6, "n_embd": 384, "dropout": 0.2}
GPT2 = {"block_size": 1024, "batch_size": 16, "gradient_accumulation_steps": 8}
WORKLOADS = {
    "readme-cpu": Workload(
        "char",
        CHARACTERS
        | ONE_MICRO_BATCH
        | SMALL
        | {"device": "cpu", "compile": False, "max_iters": 2000, "lr_decay_iters": 2000, "log_interval": 1},
    ),
    "shakespeare-gpu": Workload(
        "char",
        CHARACTERS
        | ONE_MICRO_BATCH
        | BABY
        | {"device": "cuda", "compile": True, "max_iters": 1000, "lr_decay_iters": 5000, "log_interval": 10},
    ),
    "gpt2-124m-gpu": Workload(
        "gpt2",
        GPT2
        | {"device": "cuda", "compile": True, "max_iters": 60, "eval_interval": 1000, "eval_iters": 5}
        | {"log_interval": 1},
    ),
}


@dataclass(frozen=True)
class Run:
    """One training: seconds from process start to end, median step in milliseconds, last validation loss."""

    wall_seconds: float
    step_ms: float
    val_loss: float


def parse(text: str, wall_seconds: float) -> Run:
    """Reads either trainer's output; steps that include an evaluation and the first ones are left out."""
    evaluated = {int(step) for step in re.findall(r"^step (\d+):", text, re.M)}
    steps = re.findall(r"^iter (\d+): loss [\d.]+, time ([\d.]+)ms", text, re.M)
    times = [float(ms) for step, ms in steps if int(step) >= WARM_UP_STEPS and int(step) not in evaluated]
    val_loss = re.findall(r"^step \d+: train loss [\d.]+, val loss ([\d.]+)", text, re.M)[-1]
    return Run(wall_seconds, statistics.median(times), float(val_loss))


def timed(command: list[str], folder: Path) -> Run:
    """Runs a trainer as a whole process."""
    begin = time.perf_counter()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    wall_seconds = time.perf_counter() - begin
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return parse(done.stdout, wall_seconds)


def prepare_folder(folder: Path, nanogpt: Path, text: Path | None, tokenizer: str) -> None:
    """A copy of nanoGPT with the dataset in its place."""
    for file in ("train.py", "model.py", "configurator.py"):
        shutil.copy(nanogpt / file, folder)
    source = ["shakespeare", "--from", str(text)] if text else ["pystdlib"]
    command = [sys.executable, "-m", "gptwright", "prepare", *source, f"--tokenizer={tokenizer}"]
    out = folder / "data" / DATASET
    subprocess.run([*command, "--split=nanogpt", "--out", str(out)], check=True, capture_output=True)


def medians(runs: list[Run]) -> Run:
    """The median of each figure by itself."""
    return Run(*(statistics.median(getattr(run, name) for run in runs) for name in Run.__dataclass_fields__))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nanogpt", type=Path, required=True, help="a checkout of nanoGPT")
    parser.add_argument("--workload", choices=WORKLOADS, default="readme-cpu")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--text", type=Path, help="Tiny Shakespeare; without it, Python's standard library")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="another option for both"
    )
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    given = parser.parse_args()
    workload = WORKLOADS[given.workload]
    options = workload.options | dict(pair.split("=", 1) for pair in given.set)
    arguments = [f"--{name}={value}" for name, value in (options | {"dataset": DATASET}).items()]
    ours: list[Run] = []
    theirs: list[Run] = []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        prepare_folder(folder, given.nanogpt, given.text, workload.tokenizer)
        for number in range(given.rounds):
            out_dir = f"--out_dir=out-{number}"
            ours.append(timed([sys.executable, "-m", "gptwright", "train", *arguments, out_dir], folder))
            theirs.append(timed([sys.executable, "train.py", *arguments, "--out_dir=out-nanogpt"], folder))
            print(f"round {number + 1}: gptwright {ours[-1]}  nanoGPT {theirs[-1]}", flush=True)
    ratios = {
        name: statistics.median(
            getattr(b, name) / getattr(a, name) for a, b in zip(ours, theirs, strict=True)
        )
        for name in ("wall_seconds", "step_ms")
    }
    figures = {
        "workload": given.workload,
        "options": options,
        "device": find_device(str(options["device"])).name,
        "cores": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "gptwright": [asdict(run) for run in ours],
        "nanogpt": [asdict(run) for run in theirs],
        "medians": {"gptwright": asdict(medians(ours)), "nanogpt": asdict(medians(theirs))},
        "nanogpt_over_gptwright": ratios,
    }
    print(json.dumps(figures["medians"], indent=2))
    print(
        f"nanoGPT takes {ratios['wall_seconds']:.2f} × the wall time, {ratios['step_ms']:.2f} × a step's time"
    )
    if given.out:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()

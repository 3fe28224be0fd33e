"""The full torture of a run: 300 kills, 50 and more of them inside a checkpoint's write, full disks, flipped
bits, cut records, second processes, a clock that goes backwards.

    python -m benchmarks.torture --out benchmarks/results/torture.json     (or: make torture)

What each part does is in tests/train/torture.py. It trains a real run of 27,000 parameters with a checkpoint
every 5 steps, on the CPU, in one thread; each part must end with the weights, moments and record of a run
that nothing happened to, bit for bit. The exit status is 1 if anything else was found.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from benchmarks.result import hand_over, parser

import gptwright
from gptwright.data.prepare import prepare

PARTS = {
    "kill": 250, "write_kill": 100, "disk": 60, "quota": 25, "bit": 30, "record": 20, "two": 10, "clock": 10,
}  # fmt: skip
OPTIONS = {
    "n_layer": "2", "n_head": "2", "n_embd": "32", "block_size": "16", "batch_size": "4",
    "gradient_accumulation_steps": "2", "learning_rate": "1e-2", "min_lr": "1e-3", "warmup_iters": "4",
    "checkpoint_interval": "5", "eval_interval": "50", "eval_iters": "2", "dropout": "0.1",
    "sampling": "epoch", "log_interval": "2", "device": "cpu", "dtype": "float32",
}  # fmt: skip


def main() -> int:
    """Tortures, reports."""
    arguments = parser(__doc__)
    arguments.add_argument("--steps", type=int, default=3000, help="of each run")
    arguments.add_argument("--part", action="append", metavar="NAME=COUNT", help="only these parts")
    arguments.add_argument("--beside", action="store_true", help="write checkpoints in a thread")
    options = arguments.parse_args()
    parts = options.part or [f"{name}={count}" for name, count in PARTS.items()]
    with tempfile.TemporaryDirectory() as name:
        report = torture(Path(name), options.steps, parts, beside=options.beside)
    hand_over(report, options.out)
    return 1 if report["problems"] else 0


def torture(folder: Path, steps: int, parts: list[str], *, beside: bool) -> dict[str, object]:
    """Runs the driver on a dataset made for it."""
    rng = np.random.default_rng(3)
    words = np.array(["to", "be", "or", "not", "that", "is", "the", "question", "whether", "nobler"])
    lines = [" ".join(rng.choice(words, size=7)) for _ in range(1200)]
    (folder / "corpus.txt").write_text("\n".join(lines), encoding="utf-8")
    prepare(str(folder / "corpus.txt"), out=folder / "words", tokenizer="char")
    settings = OPTIONS | {
        "dataset": str(folder / "words"),
        "max_iters": str(steps),
        "lr_decay_iters": str(steps),
        "async_checkpoints": str(beside),
    }
    driver = Path(__file__).parents[1] / "tests" / "train" / "torture.py"
    arguments = [f"--{key}={value}" for key, value in settings.items()]
    done = subprocess.run(
        [sys.executable, str(driver), str(folder / "runs"), "20261128", *parts, "--", *arguments],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    found = json.loads(done.stdout)
    return {
        "schema": "gptwright.benchmark.torture/1",
        "gptwright": gptwright.__version__,
        "steps": steps,
        "checkpoints_in_a_thread": beside,
        **found,
    }


if __name__ == "__main__":
    sys.exit(main())

"""What each ingredient of the fast recipe is worth: the recipe without it, over several seeds.

    python benchmarks/ingredients.py --text tinyshakespeare.txt [--seeds 3] [--only NAME …] [--out FILE]

Every run has the preset's steps and batch; the validation loss is over the whole split. Steps, not seconds,
are held fixed, so an ingredient's own cost is not in these figures (Muon's is: docs/performance.md).
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

from gptwright.bench.process import EVALUATION
from gptwright.bench.rounds import prepare_data
from gptwright.bench.trainers import DATASET
from gptwright.config.ingredients import MODERN
from gptwright.hardware.detect import find_device

# AdamW as nanoGPT sets it, at three rates, the best of which counts.
ADAMW = {"optimizer": "adamw", "beta1": 0.9, "beta2": 0.99, "weight_decay": 0.1, "grad_clip": 1.0}
VARIANTS: dict[str, dict[str, object]] = {
    "all of it": {},
    **{f"without {name}": {name: False} for name in MODERN.used()},
    "five Newton-Schulz steps instead of three": {"muon_steps": 5},
    "the output head tied": {"tie_weights": True},
    **{f"AdamW at {rate:g}": ADAMW | {"learning_rate": rate} for rate in (1e-3, 3e-3, 1e-2)},
}


def final_loss(folder: Path, preset: str, options: dict[str, object]) -> float:
    """Trains and returns the last validation loss."""
    arguments = [f"--{name}={value}" for name, value in options.items()]
    done = subprocess.run(
        [sys.executable, "-m", "gptwright", "train", preset, f"--dataset={DATASET}", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    return [float(found[3]) for line in done.stdout.splitlines() if (found := EVALUATION.match(line))][-1]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--preset", default="shakespeare")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--windows", type=int, default=1752, help="of validation; 1752 hold the whole split")
    parser.add_argument("--only", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    rows: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        prepare_data(folder, "char", given.text)
        for name in given.only:
            rows[name] = [
                final_loss(
                    folder,
                    given.preset,
                    {
                        **VARIANTS[name],
                        "seed": seed,
                        "eval_interval": 1_000_000,
                        "eval_iters": given.windows // 12,
                        "device": "cpu",
                        "out_dir": f"out-{len(rows)}-{seed}",
                    },
                )
                for seed in range(1, given.seeds + 1)
            ]
            mean, spread = statistics.mean(rows[name]), statistics.stdev(rows[name])
            print(f"{name:<45} {mean:.4f} ± {spread:.4f} (standard deviation of a seed)", flush=True)
    if given.out:
        figures = {
            "schema": "gptwright.benchmark.ingredients/1",
            "preset": given.preset,
            "device": find_device("cpu").name,
            "torch": torch.__version__,
            "val_loss": rows,
        }
        given.out.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

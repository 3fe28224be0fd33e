"""What a plan says of small runs on this CPU, estimated and measured, beside what training them takes.

    python benchmarks/plan_outcome.py [--rounds N] [--out FILE]

For each shape and round, in one process after another: `plan`, `plan --measure`, `train`. Run it on a quiet
machine; the figures are medians over the rounds.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from gptwright.hardware.cpu import cpu_name

SHAPES = {
    "tiny": {"n_layer": 2, "n_head": 2, "n_embd": 64, "block_size": 64, "batch_size": 8},
    "readme-cpu": {"n_layer": 4, "n_head": 4, "n_embd": 128, "block_size": 64, "batch_size": 12},
    "medium": {"n_layer": 4, "n_head": 4, "n_embd": 256, "block_size": 128, "batch_size": 16},
    "baby": {"n_layer": 6, "n_head": 6, "n_embd": 384, "block_size": 256, "batch_size": 16},
}
# Of each training: some ten seconds, but for the last, whose step takes seconds.
STEPS = {"tiny": 300, "readme-cpu": 150, "medium": 40, "baby": 12}


def gptwright(*arguments: str, folder: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "gptwright", *arguments, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=True)
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def trained(folder: Path, options: list[str], out: str) -> float:
    gptwright("train", *options, f"--out_dir={out}", folder=folder)
    lines = (folder / out / "metrics.jsonl").read_text("utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    rates = [r["tokens_per_second"] for r in records if r["kind"] == "train"][1:]
    return float(statistics.median(rates))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    rows = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "text.txt").write_text("".join(f"{n} times {n} is {n * n}.\n" for n in range(40_000)))
        gptwright("prepare", "text.txt", "--tokenizer", "char", "--out", "data/numbers", folder=folder)
        for name, shape in SHAPES.items():
            options = [f"--{key}={value}" for key, value in shape.items()]
            options += ["--dataset=numbers", "--device=cpu", "--gradient_accumulation_steps=1"]
            run = [*options, f"--max_iters={STEPS[name]}", "--eval_interval=100000", "--eval_iters=1"]
            run += [f"--log_interval={max(1, STEPS[name] // 10)}", "--warmup_iters=2"]
            estimates, measures, outcomes = [], [], []
            for number in range(given.rounds):
                estimates.append(
                    gptwright("plan", *options, folder=folder)["throughput"]["tokens_per_second"]
                )
                measured = gptwright("plan", *options, "--measure", folder=folder)
                own = measured["trials"][0]
                tokens = own["micro_batch"] * own["accumulation"] * shape["block_size"]
                measures.append(tokens / own["step_seconds"][1])
                outcomes.append(trained(folder, run, f"out-{name}-{number}"))
            outcome, measure = statistics.median(outcomes), statistics.median(measures)
            band = {key: statistics.median(e[key] for e in estimates) for key in ("low", "likely", "high")}
            rows[name] = {
                "estimated": band,
                "measured": measure,
                "trained": outcome,
                "inside_band": band["low"] <= outcome <= band["high"],
                "measured_over_trained": measure / outcome,
            }
            print(name, json.dumps(rows[name]), flush=True)
    result = {"processor": cpu_name(), "rounds": given.rounds, "shapes": rows}
    if given.out is not None:
        given.out.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

"""Refits the constants of the model of training speed to the published runs in `speeds.toml`, and checks it.

    python benchmarks/fit_efficiency.py [--check] [--markdown]

Fits the sources marked `fit` and prints the constants for `hardware/step_time.py` and `hardware/families.py`;
with --check it fits nothing and shows how the constants in place do. Every source weighs the same, however
many runs it has (a run counts 1/√runs), and the loss is soft, so that one odd card does not bend the rest.
"""

import argparse
import math
import statistics
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from scipy.optimize import least_squares

from gptwright.arithmetic.shape import ModelShape
from gptwright.hardware import families
from gptwright.hardware import step_time as model
from gptwright.hardware.step_time import FITTED, Constants, Work, step_time
from gptwright.hardware.table import find_spec

SPEEDS = Path(families.__file__).with_name("speeds.toml")


@dataclass(frozen=True)
class Run:
    """A published run: where it is from, what was done, how fast it was."""

    source: str
    split: str
    early: bool
    device: str
    shape_name: str
    work: Work
    tokens_per_second: float
    weight: float


def read_runs() -> list[Run]:
    """Every run of the file that was made on a card."""
    content = tomllib.loads(SPEEDS.read_text("utf-8"))
    runs = []
    for source in content["sources"]:
        runs += [_read(content["shapes"], source, row) for row in source["runs"]]
    return runs


def _read(shapes: Mapping[str, Any], source: Mapping[str, Any], row: Mapping[str, Any]) -> Run:
    match = find_spec(row["device"])
    assert match is not None, row["device"]
    spec = match.spec
    used = "tf32" if row["dtype"] == "float32" and spec.native("tf32") else row["dtype"]
    shape = ModelShape(**({"bias": True, "tie_weights": True, "dropout": 0.0} | shapes[row["shape"]]))
    work = Work(
        shape=shape,
        peak_flops=spec.peaks[used],
        bandwidth=spec.bandwidth,
        dtype=row["dtype"],
        compiled=row["compiled"],
        micro_batch=row["micro_batch"],
        accumulation=row["accumulation"],
        device_kind="mps" if spec.vendor == "apple" else "cuda",
        family=spec.family,
        power_watts=spec.power_watts,
        device_count=row.get("device_count", 1),
        flash=row["flash"],
    )
    weight = 1 / math.sqrt(len(source["runs"]))
    early = source.get("torch") == "2.0"
    return Run(
        source["id"],
        source["split"],
        early,
        row["device"],
        row["shape"],
        work,
        row["tokens_per_second"],
        weight,
    )


def predicted(run: Run, constants: Constants) -> float:
    """Tokens per second that the model gives."""
    seconds = step_time(run.work, constants).total
    return run.work.step_tokens / (seconds * (constants.early_compiler if run.early else 1))


# What is fitted, and between which bounds: physics gives the order of magnitude, published runs the rest.
BOUNDS: Mapping[str, tuple[float, float]] = {
    "product": (0.8, 1.0),
    "width": (5, 150),
    "fused_attention": (0.2, 0.9),
    "unfused_attention": (0.1, 0.8),
    "layer_bytes 0": (50, 500),
    "layer_bytes 1": (150, 900),
    "vocabulary_bytes 0": (6, 40),
    "vocabulary_bytes 1": (12, 80),
    "score_bytes 0": (6, 60),
    "score_bytes 1": (12, 150),
    "kernel_seconds": (0.2e-6, 8e-6),
    "power": (0.3, 1.0),
    "early_compiler": (1.0, 1.8),
    "watts GA100": (0.8, 2.0),
    "watts Ampere": (1.0, 4.0),
    "watts Ada": (0.6, 4.0),
}
GENERATIONS = {"Ampere": ("Ampere GeForce", "Ampere pro"), "GA100": ("GA100",)} | {
    "Ada": ("Ada GeForce", "Ada pro", "Blackwell GeForce", "Blackwell pro")
}


def unpack(values: np.ndarray) -> tuple[Constants, Mapping[str, families.Family]]:
    """Constants and families from logarithms in the order of BOUNDS."""
    named = {name: math.exp(value) for name, value in zip(BOUNDS, values, strict=True)}
    constants: dict[str, Any] = {name: value for name, value in named.items() if " " not in name}
    for name in ("layer_bytes", "vocabulary_bytes", "score_bytes"):
        constants[name] = (named[f"{name} 0"], named[f"{name} 1"])
    known = dict(families.FAMILIES)
    for generation, names in GENERATIONS.items():
        known |= {name: replace(known[name], watts=named[f"watts {generation}"]) for name in names}
    return Constants(**constants), known


def fit(runs: Sequence[Run]) -> tuple[Constants, Mapping[str, families.Family]]:
    """The constants that predict these runs best, from several starts."""
    low = np.log([bounds[0] for bounds in BOUNDS.values()])
    high = np.log([bounds[1] for bounds in BOUNDS.values()])
    middle = (low + high) / 2

    def residuals(values: np.ndarray) -> np.ndarray:
        constants, known = unpack(values)
        with mock.patch.object(model, "FAMILIES", known):
            off = [run.weight * math.log(predicted(run, constants) / run.tokens_per_second) for run in runs]
        # A constant that the runs hardly speak of stays near the middle of its bounds.
        return np.array(off + list(0.03 * (values - middle)))

    generator = np.random.default_rng(0)
    starts = [middle] + [generator.uniform(low, high) for _ in range(5)]
    fits = [least_squares(residuals, x, bounds=(low, high), loss="soft_l1", f_scale=0.1) for x in starts]
    return unpack(min(fits, key=lambda each: each.cost).x)


def report(runs: Sequence[Run], constants: Constants, *, markdown: bool) -> None:
    """Predicted against measured, and the errors of each split."""
    for split in ("fit", "held-out"):
        chosen = [run for run in runs if run.split == split]
        ratios = [predicted(run, constants) / run.tokens_per_second for run in chosen]
        for run, ratio in zip(chosen, ratios, strict=True):
            _print_row(run, ratio, constants, markdown=markdown)
        errors = [abs(ratio - 1) for ratio in ratios]
        by_source = [
            statistics.median(e for e, run in zip(errors, chosen, strict=True) if run.source == source)
            for source in dict.fromkeys(run.source for run in chosen)
        ]
        print(
            f"\n{split}: {len(chosen)} runs of {len(by_source)} sources,"
            f" median error {statistics.median(errors):.1%}, by source {statistics.median(by_source):.1%},"
            f" largest {max(errors):.1%},"
            f" measured over likely from {1 / max(ratios):.2f} to {1 / min(ratios):.2f}\n"
        )


def _print_row(run: Run, ratio: float, constants: Constants, *, markdown: bool) -> None:
    work = run.work
    how = ("compiled" if work.compiled else "eager") + ("" if work.flash else ", unfused")
    how += ", 2.0" if run.early else ""
    batch = f"{work.micro_batch} × {work.accumulation}" + (
        f" × {work.device_count}" if work.device_count > 1 else ""
    )
    speed = f"{ratio * run.tokens_per_second:,.0f}"
    cells = [
        run.source,
        run.device,
        run.shape_name,
        batch,
        how,
        f"{run.tokens_per_second:,.0f}",
        speed,
        f"{ratio - 1:+.0%}",
    ]
    if markdown:
        print("| " + " | ".join(cells) + " |")
        return
    parts = step_time(work, constants)
    shares = " ".join(f"{name[:4]} {getattr(parts, name) / parts.total:.0%}" for name in parts.__slots__)
    widths = (25, 22, 24, 12, 22, 10, 10, 5)
    print(" ".join(f"{cell:{width}}" for cell, width in zip(cells, widths, strict=True)), shares)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="fit nothing, show the constants in place")
    parser.add_argument("--markdown", action="store_true", help="rows as docs/throughput.md has them")
    given = parser.parse_args()
    runs = read_runs()
    if given.check:
        report(runs, FITTED, markdown=given.markdown)
        return
    constants, known = fit([run for run in runs if run.split == "fit"])
    print(constants)
    print({name: round(known[name].watts, 3) for names in GENERATIONS.values() for name in names})
    with mock.patch.object(model, "FAMILIES", known):
        report(runs, constants, markdown=given.markdown)


if __name__ == "__main__":
    main()

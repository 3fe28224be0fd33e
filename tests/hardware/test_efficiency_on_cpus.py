"""The model of training speed against runs of our own on CPUs: those it was fitted on, and some made here."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gptwright.arithmetic.shape import ModelShape
from gptwright.data.prepare import prepare
from gptwright.hardware.cpu import has_matrix_registers
from gptwright.hardware.detect import find_device
from gptwright.hardware.efficiency import CPU_SPREAD, GPU_BASIS, Speed, predict_speed
from gptwright.hardware.step_time import Work
from gptwright.kernels.library import Missing, load_kernels
from gptwright.plan.device import BFLOAT16_RATE, MATRIX_RATE
from tests.conftest import LONG
from tests.hardware.test_efficiency import CHARACTERS, CONTENT, ROOT, shape_of

CPU_RUNS = [(cpu, run) for cpu in CONTENT["cpus"] for run in cpu["runs"]]


def on_cpu(
    shape: ModelShape,
    peak_flops: float,
    micro_batch: int,
    *,
    dtype: str = "float32",
    kernels: bool = False,
    vector_flops: float | None = None,
) -> Speed:
    work = Work(
        shape=shape,
        peak_flops=peak_flops,
        bandwidth=None,
        dtype=dtype,
        compiled=False,
        micro_batch=micro_batch,
        accumulation=1,
        device_kind="cpu",
        kernels=kernels,
        vector_flops=vector_flops,
    )
    return predict_speed(work)


def on_that_cpu(cpu: dict[str, Any], run: dict[str, Any]) -> Speed:
    shape, peak = replace(shape_of(run["shape"]), bias=False), run["peak_gflops"] * 1e9
    vectors = run["vector_gflops"] * 1e9 if "vector_gflops" in run else None
    how = {"dtype": cpu["dtype"], "kernels": cpu.get("kernels", False), "vector_flops": vectors}
    return on_cpu(shape, peak, run["micro_batch"], **how)


@pytest.mark.parametrize(("cpu", "run"), CPU_RUNS, ids=lambda value: str(value.get("shape", "")))
def test_our_trainer_on_a_cpu_is_inside_its_band(cpu: dict[str, Any], run: dict[str, Any]) -> None:
    speed = on_that_cpu(cpu, run)
    assert speed.low < run["tokens_per_second"] < speed.high <= 6 * speed.low
    assert speed.likely == pytest.approx(run["tokens_per_second"], rel=0.35)


@pytest.mark.parametrize("cpu", CONTENT["cpus"], ids=lambda cpu: str(cpu["name"]))
def test_the_basis_on_a_cpu_says_how_far_off_it_was(cpu: dict[str, Any]) -> None:
    speeds = [(on_that_cpu(cpu, run), run["tokens_per_second"]) for run in cpu["runs"]]
    largest = max(abs(speed.likely / measured - 1) for speed, measured in speeds)
    count = {5: "five", 8: "eight"}[len(speeds)]
    for speed, _ in speeds:
        assert f"this CPU's peak in {cpu['dtype']}, " in speed.basis
        assert ("AMX" in speed.basis) == ("AMX" in cpu["name"])
        assert f"at {count} shapes on one CPU, within {100 * largest:.0f} % there" in speed.basis
        assert ("with its own kernels" in speed.basis) == cpu.get("kernels", False)


def test_a_cpus_band_is_as_wide_as_is_said() -> None:
    speed = on_cpu(CHARACTERS, 156e9, 16)
    assert speed.likely / speed.low == pytest.approx(CPU_SPREAD[0])
    assert speed.high / speed.likely == pytest.approx(CPU_SPREAD[1])
    assert speed.basis != GPU_BASIS


def test_dropout_costs_a_cpu_its_fused_attention() -> None:
    with_dropout = on_cpu(replace(CHARACTERS, dropout=0.1), 156e9, 16).likely
    assert with_dropout < 0.9 * on_cpu(CHARACTERS, 156e9, 16).likely


def cpu_shape(name: str) -> ModelShape:
    return replace(shape_of(f"cpu-{name}"), bias=False)


def trained_here(
    folder: Path, *shapes: str, dtype: str, kernels: bool
) -> list[tuple[dict[str, Any], ModelShape, int]]:
    """What `benchmarks/cpu_speed.py` prints of these shapes, with the shapes and their micro-batches."""
    # As many characters as Python's library has, which takes longer to prepare than to train on.
    ids = np.random.default_rng(0).integers(cpu_shape("tiny").vocab_size, size=100_000)
    (folder / "text.txt").write_text("".join(chr(0x100 + number) for number in ids), "utf-8")
    prepare(str(folder / "text.txt"), out=folder / "data", tokenizer="char")
    # One thread, and CPU time for peak and steps alike: what else the machine does then hardly matters.
    command = [
        sys.executable,
        "benchmarks/cpu_speed.py",
        "--threads=1",
        "--steps=8",
        f"--dtype={dtype}",
        f"--dataset={folder / 'data'}",
        *([] if kernels else ["--no-kernels"]),
    ]
    done = subprocess.run([*command, *shapes], cwd=ROOT, capture_output=True, text=True, check=True)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(row["shape"], row["dtype"]) for row in rows] == [(shape, dtype) for shape in shapes]
    micro_batches = {run["shape"]: run["micro_batch"] for _, run in CPU_RUNS}
    return [(row, cpu_shape(row["shape"]), micro_batches[f"cpu-{row['shape']}"]) for row in rows]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shapes", "kernels"),
    [
        (("tiny", "readme-cpu", "tiny-bpe", "medium") if LONG else ("readme-cpu", "tiny-bpe"), False),
        (("readme-cpu", "medium"), True),
    ],
    ids=["torch alone", "our own kernels"],
)
def test_shapes_trained_here_are_inside_the_band_of_the_peak_measured_beside_them(
    tmp_path: Path, shapes: tuple[str, ...], *, kernels: bool
) -> None:
    if kernels and isinstance(missing := load_kernels(torch.float32), Missing):
        pytest.skip(missing.reason)
    for row, shape, micro_batch in trained_here(tmp_path, *shapes, dtype="float32", kernels=kernels):
        speed = on_cpu(shape, row["peak_gflops"] * 1e9, micro_batch, kernels=kernels)
        assert speed.low < row["tokens_per_second"] < speed.high, row


@pytest.mark.slow
def test_two_shapes_trained_here_in_bfloat16_are_inside_the_band_of_its_peak(tmp_path: Path) -> None:
    if "bfloat16" not in find_device("cpu").native_dtypes:
        pytest.skip("this CPU has no bfloat16")
    if isinstance(missing := load_kernels(torch.bfloat16), Missing):
        pytest.skip(missing.reason)
    for row, shape, micro_batch in trained_here(
        tmp_path, "readme-cpu", "medium", dtype="bfloat16", kernels=True
    ):
        vectors = 2 * row["float32_gflops"] * 1e9 if has_matrix_registers() else None
        peak = row["peak_gflops"] * 1e9
        speed = on_cpu(shape, peak, micro_batch, dtype="bfloat16", kernels=True, vector_flops=vectors)
        assert speed.low < row["tokens_per_second"] < speed.high, row
        # A plan takes so many times numpy's float32 peak for it, which another process may have disturbed.
        rate = MATRIX_RATE if has_matrix_registers() else BFLOAT16_RATE
        assert 0.5 * rate < row["peak_gflops"] / row["float32_gflops"] < 2 * rate, row

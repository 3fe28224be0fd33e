"""Peak and bandwidth under a false clock and against another library; compilers that work and that do not."""

import functools
import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from gptwright.hardware import probe
from gptwright.hardware.detect import Device, find_device
from gptwright.hardware.probe import try_compiler

# Without what they remember.
measure: Callable[..., float] = probe.measure_matmul_peak.__wrapped__
measure_bandwidth: Callable[..., float] = probe.measure_bandwidth.__wrapped__


@pytest.fixture
def cpu() -> Device:
    return find_device("cpu")


def test_the_rate_is_two_flops_a_product_over_the_fastest_run(
    monkeypatch: pytest.MonkeyPatch, cpu: Device
) -> None:
    # The clock is read once at the beginning; then each run reads it twice, and once more before the fourth.
    runs_of_each_size = [[0.30, 0.10, 0.20], [0.50, 0.80, 0.25]]
    readings = [reading for runs in runs_of_each_size for reading in clock(runs)]
    monkeypatch.setattr(probe, "SIDES", {"cpu": (16, 32)})
    monkeypatch.setattr(time, "perf_counter", iter(readings).__next__)
    peak = measure(cpu, torch.float32, seconds=0.5)
    monkeypatch.undo()
    assert peak == pytest.approx(max(2 * 16**3 / 0.10, 2 * 32**3 / 0.25))


def clock(runs: list[float]) -> Iterator[float]:
    now = 100.0
    yield now
    for seconds in runs:
        yield now
        now += seconds
        yield now
    yield now


def test_a_fast_device_is_measured_for_as_long_as_asked(monkeypatch: pytest.MonkeyPatch, cpu: Device) -> None:
    ticks = iter(range(10**6))
    monkeypatch.setattr(probe, "SIDES", {"cpu": (4,)})
    monkeypatch.setattr(time, "perf_counter", lambda: next(ticks) * 0.01)
    measure(cpu, torch.float32, seconds=3.0)
    monkeypatch.undo()
    assert next(ticks) == pytest.approx(300, abs=3)


def test_this_cpus_peak_is_of_the_size_that_numpy_reaches(
    monkeypatch: pytest.MonkeyPatch, cpu: Device
) -> None:
    monkeypatch.setattr(probe, "SIDES", {"cpu": (512,)})
    ours = measure(cpu, torch.float32, seconds=0.1)
    a = np.random.default_rng(0).normal(size=(512, 512)).astype(np.float32)
    fastest = min(timed(lambda: a @ a) for _ in range(10))
    # Another library, other threads, a machine that does other things: the size must agree, no more.
    assert 0.05 < ours / (2 * 512**3 / fastest) < 20


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def test_on_a_gpu_a_measurement_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch, cpu: Device) -> None:
    done: list[object] = []
    gpu = replace(cpu, type="cuda", index=1)

    def rate(*_: object) -> float:
        done.append("rate")
        return 1.0

    monkeypatch.setattr(probe, "_rate", rate)
    monkeypatch.setattr(probe, "_copy_rate", rate)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: done.append("emptied"))
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", done.append)
    assert measure(gpu, torch.float32) == 1.0
    assert done == ["rate", "rate", "emptied", torch.device("cuda:1")]
    assert measure_bandwidth(gpu) == 1.0
    assert done[4:] == ["rate", "emptied", torch.device("cuda:1")]
    monkeypatch.setattr(torch.mps, "empty_cache", lambda: done.append("given back"))
    probe.give_back(replace(cpu, type="mps"))
    assert done[7:] == ["given back"]


def test_a_peak_is_measured_once_a_process(monkeypatch: pytest.MonkeyPatch, cpu: Device) -> None:
    monkeypatch.setattr(probe, "SIDES", {"cpu": (64,)})
    probe.measure_matmul_peak.cache_clear()
    try:
        first = probe.measure_matmul_peak(cpu, torch.float32, seconds=0.001)
        assert probe.measure_matmul_peak(cpu, torch.float32, seconds=0.001) == first
        assert probe.measure_matmul_peak.cache_info().misses == 1
        probe.measure_matmul_peak(cpu, torch.float64, seconds=0.001)
        assert probe.measure_matmul_peak.cache_info().misses == 2
    finally:
        probe.measure_matmul_peak.cache_clear()


def test_the_products_are_in_the_dtype_asked_for(monkeypatch: pytest.MonkeyPatch, cpu: Device) -> None:
    seen = []
    matmul = torch.matmul

    def spy(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
        seen.append((a.dtype, b.dtype, out.dtype, tuple(a.shape)))
        return matmul(a, b, out=out)

    monkeypatch.setattr(probe, "SIDES", {"cpu": (8, 16)})
    monkeypatch.setattr(torch, "matmul", spy)
    measure(cpu, torch.bfloat16, seconds=0.0)
    low = torch.bfloat16
    assert seen == [(low, low, low, (8, 8))] * 3 + [(low, low, low, (16, 16))] * 3


def test_bandwidth_counts_what_is_read_and_what_is_written(
    monkeypatch: pytest.MonkeyPatch, cpu: Device
) -> None:
    readings = list(clock([0.30, 0.10, 0.20]))
    monkeypatch.setattr(probe, "COPIED", {"cpu": 4096})
    monkeypatch.setattr(time, "perf_counter", iter(readings).__next__)
    bandwidth = measure_bandwidth(cpu, seconds=0.5)
    monkeypatch.undo()
    assert bandwidth == pytest.approx(2 * 4096 / 0.10)


def test_this_machines_bandwidth_is_of_the_size_that_numpy_reaches(
    monkeypatch: pytest.MonkeyPatch, cpu: Device
) -> None:
    monkeypatch.setattr(probe, "COPIED", {"cpu": 2**26})
    ours = measure_bandwidth(cpu, seconds=0.1)
    source, target = np.zeros(2**24, np.float32), np.ones(2**24, np.float32)
    fastest = min(timed(lambda: np.copyto(target, source)) for _ in range(10))
    assert 0.05 < ours / (2 * 2**26 / fastest) < 20


def test_a_bandwidth_is_measured_once_a_process(monkeypatch: pytest.MonkeyPatch, cpu: Device) -> None:
    monkeypatch.setattr(probe, "COPIED", {"cpu": 4096})
    probe.measure_bandwidth.cache_clear()
    try:
        assert probe.measure_bandwidth(cpu, seconds=0.0) == probe.measure_bandwidth(cpu, seconds=0.0)
        assert probe.measure_bandwidth.cache_info().misses == 1
    finally:
        probe.measure_bandwidth.cache_clear()


def fake_compiler(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = folder / "g++"
    compiler.write_text(f"#!/bin/sh\n{script}\n")
    compiler.chmod(0o755)
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(folder) + os.pathsep + "/bin")


posix = pytest.mark.skipif(os.name != "posix", reason="the compilers made here are shell scripts")


@posix
def test_a_compiler_that_fails_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    complaint = 'echo "$a:1:10: fatal error: Python.h: No such file" >&2'
    script = f"for a; do case $a in *.cpp) {complaint};; esac; done; exit 1"
    fake_compiler(tmp_path, script, monkeypatch)
    assert try_compiler() == (False, "g++ fails: 1:10: fatal error: Python.h: No such file")


@posix
def test_a_compiler_that_does_not_come_back_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_compiler(tmp_path, "exec sleep 30", monkeypatch)
    begin = time.perf_counter()
    assert try_compiler(seconds=0.2) == (False, "g++ had not compiled one line after 0.2 s")
    assert time.perf_counter() - begin < 10


def test_a_machine_without_a_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert try_compiler() == (False, "no C++ compiler is installed")


@posix
@pytest.mark.skipif(not (shutil.which("g++") or shutil.which("clang++")), reason="needs a C++ compiler")
def test_this_machines_compiler_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "SOURCE", "int f() { return 1; }\n")
    works, seen = try_compiler(seconds=60.0)
    assert works, seen
    monkeypatch.setattr(probe, "SOURCE", "#include <no_such_header.h>\n")
    assert try_compiler(seconds=60.0) == (works, seen)  # remembered
    works, seen = try_compiler(seconds=61.0)
    assert not works
    assert "no_such_header.h" in seen


@pytest.fixture
def another(cpu: Device) -> Iterator[Device]:
    """A device of which nothing is remembered."""
    yield replace(cpu, name="another")
    probe.try_gpu_compiler.cache_clear()


def test_a_gpus_compiler_is_tried_on_a_kernel(monkeypatch: pytest.MonkeyPatch, another: Device) -> None:
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="aot_eager"))
    works, seen = probe.try_gpu_compiler(another)
    assert works, seen
    assert seen.startswith("torch.compile made a kernel in ")


def test_a_gpus_compiler_that_fails_says_why(monkeypatch: pytest.MonkeyPatch, another: Device) -> None:
    """In the words of what failed, not of what torch wraps around it."""

    def fails(*_: object) -> None:
        raise RuntimeError("Failed to find C compiler. Please specify via CC\nand so on")

    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend=fails))
    assert probe.try_gpu_compiler(another) == (
        False,
        "torch.compile fails: RuntimeError: Failed to find C compiler. Please specify via CC",
    )


def test_a_card_that_is_not_there_has_no_compiler(another: Device) -> None:
    works, seen = probe.try_gpu_compiler(replace(another, type="cuda", index=99))
    assert not works
    assert seen.startswith("torch.compile fails: ")

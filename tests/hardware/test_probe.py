"""The measured peak: its arithmetic under a false clock, its size against another library's."""

import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch

from gptwright.hardware import probe
from gptwright.hardware.detect import Device, find_device

measure: Callable[..., float] = probe.measure_matmul_peak.__wrapped__  # without what it remembers


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

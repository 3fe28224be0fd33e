"""This CPU without torch: what the system says of it, and a peak that is one."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gptwright.hardware import cpu
from gptwright.hardware.cpu import (
    PATIENCE,
    SECONDS,
    cpu_memory_bytes,
    cpu_name,
    has_bfloat16,
    measure_cpu_peak,
    usable_cores,
)
from gptwright.hardware.detect import find_device

CPUINFO = Path("/proc/cpuinfo")
MEMINFO = Path("/proc/meminfo")


def test_the_name_is_not_empty() -> None:
    assert cpu_name().strip() == cpu_name() != ""


@pytest.mark.skipif(not MEMINFO.exists(), reason="needs Linux")
def test_name_and_memory_are_the_kernels() -> None:
    total = re.search(r"MemTotal:\s+(\d+) kB", MEMINFO.read_text("utf-8"))
    assert total is not None
    assert cpu_memory_bytes() == int(total[1]) * 1024
    model = re.search(r"^model name\s*: (.*)$", CPUINFO.read_text("utf-8"), re.MULTILINE)
    if model:
        assert cpu_name() == model[1].strip()


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs Linux")
def test_cores_are_those_this_process_may_use() -> None:
    before = os.sched_getaffinity(0)
    assert usable_cores() == len(before)
    os.sched_setaffinity(0, {min(before)})
    try:
        assert usable_cores() == 1
    finally:
        os.sched_setaffinity(0, before)


def test_bfloat16_is_what_torch_finds() -> None:
    assert has_bfloat16() == ("bfloat16" in find_device("cpu").native_dtypes)


@pytest.mark.parametrize(
    ("flags", "has"),
    [
        ("fpu avx2 avx512f avx512_bf16 gfni", True),
        ("fpu avx512f amx_bf16 amx_tile", True),
        ("fpu avx2 avx512f avx512_vnni", False),
        ("", False),
    ],
)
def test_either_instruction_set_has_bfloat16(
    monkeypatch: pytest.MonkeyPatch, flags: str, *, has: bool
) -> None:
    monkeypatch.setattr(cpu, "_cpuinfo", lambda field: flags if field == "flags" else "another")
    assert has_bfloat16() is has


def test_the_peak_is_measured_once_and_within_reason() -> None:
    peak = measure_cpu_peak()
    assert measure_cpu_peak() == peak
    # A core does 1 GFLOP/s at the very least, and no machine 100 TFLOP/s.
    assert 1e9 < peak < 1e14


def test_a_peak_takes_no_longer_than_it_says() -> None:
    code = (
        "import time, numpy; from gptwright.hardware.cpu import measure_cpu_peak;"
        "begin = time.process_time(); measure_cpu_peak(); print(time.process_time() - begin)"
    )
    one_thread = os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=one_thread, capture_output=True, text=True, check=True
    )
    assert float(done.stdout) < PATIENCE * SECONDS + 0.5


def test_torch_is_not_needed() -> None:
    code = "import sys, gptwright.hardware.cpu as c; c.measure_cpu_peak(); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"

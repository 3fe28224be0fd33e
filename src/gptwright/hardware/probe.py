"""What was tried here, in a second or so: matrix products, copies, and a compiler.

The denominator of an MFU decides what it says, so ours is this machine's own matrix-multiply rate in the
dtype of the run: square matrices large enough to hide every overhead, the best of several short runs,
because what disturbs a measurement only ever makes it slower. Memory bandwidth is measured in the same way.

On a CPU `torch.compile` itself is not tried: on two busy cores the first call took 29 s, and 8 s with its
cache warm. What it most often lacks is a compiler that finds Python's headers, and that is tried. On a GPU,
where every run is compiled, it makes one kernel of one line: what may be missing there (Triton, a C
compiler, headers, a driver that knows the card, Triton's code for it) shows in no other way, and a run would
end at its first step.
"""

import functools
import os
import shutil
import subprocess
import sysconfig
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from gptwright.hardware.detect import Device

# Sides of the square matrices: large enough to fill the device, and for a CPU a small one too, whose product
# fits into a slice of the scheduler. With another process on one of two cores, 1536 measured 96 GFLOP/s and
# 384 measured 149, where both reach 150 to 170 alone.
SIDES = {"cpu": (384, 1536), "cuda": (4096, 8192), "mps": (2048, 4096)}

# Bytes to copy: several times the largest cache (126 MB of a B200, some 100 MB of a server's CPU).
COPIED = {"cpu": 256 * 2**20, "cuda": 512 * 2**20, "mps": 256 * 2**20}

# What torch.compile generates includes Python's headers, on a CPU and, through Triton, on a GPU.
SOURCE = '#include <Python.h>\n#include <cmath>\nextern "C" double f(double x) { return std::sin(x); }\n'


@functools.lru_cache
def measure_matmul_peak(
    device: Device, dtype: torch.dtype, *, seconds: float = 0.6, threads: int | None = None
) -> float:
    """`matmul_peak_now`, measured once a process.

    Args:
        device: where to measure.
        dtype: of both inputs and the result.
        seconds: about how long to measure.
        threads: of a CPU, to measure with; None for as many as torch has.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(threads or before)
    try:
        return matmul_peak_now(device, dtype, seconds=seconds)
    finally:
        torch.set_num_threads(before)


def matmul_peak_now(device: Device, dtype: torch.dtype, *, seconds: float) -> float:
    """The best matrix-multiply rate in FLOP/s that `device` reaches in `dtype`, inputs from a normal law.

    Args:
        device: where to measure.
        dtype: of both inputs and the result.
        seconds: about how long to measure; at least three products a size are timed.
    """
    sides = SIDES[device.type]
    rate = max(_rate(device, dtype, side, seconds / len(sides)) for side in sides)
    give_back(device)
    return rate


def _rate(device: Device, dtype: torch.dtype, side: int, seconds: float) -> float:
    # Drawn where they are used: a processor takes over a second for the numbers of a GPU's matrices.
    generator = torch.Generator(device.torch_device).manual_seed(0)
    a, b = (
        torch.randn(side, side, generator=generator, device=device.torch_device, dtype=dtype)
        for _ in range(2)
    )
    out = a @ b
    return 2 * side**3 / fastest(lambda: torch.matmul(a, b, out=out), device, seconds)


@functools.lru_cache
def measure_bandwidth(device: Device, *, seconds: float = 0.3) -> float:
    """The best rate in bytes/s at which `device` copies within its memory, bytes read and bytes written.

    Measured once a process.

    Args:
        device: where to measure.
        seconds: about how long to measure; at least three copies are timed.
    """
    rate = _copy_rate(device, seconds)
    give_back(device)
    return rate


def _copy_rate(device: Device, seconds: float) -> float:
    numbers = COPIED[device.type] // 4
    source = torch.zeros(numbers, device=device.torch_device)
    target = torch.empty_like(source)
    target.copy_(source)
    return 2 * 4 * numbers / fastest(lambda: target.copy_(source), device, seconds)


def give_back(device: Device) -> None:
    """Leaves nothing behind of what was before: what comes after finds its memory, and its own peak."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device.torch_device)
    elif device.type == "mps":
        torch.mps.empty_cache()


def fastest(work: Callable[[], object], device: Device, seconds: float) -> float:
    """Seconds of the fastest of several runs of `work`: three at least, and what `seconds` has room for."""
    synchronize(device)
    least = float("inf")
    begin = time.perf_counter()
    runs = 0
    while runs < 3 or time.perf_counter() - begin < seconds:
        start = time.perf_counter()
        work()
        synchronize(device)
        least = min(least, time.perf_counter() - start)
        runs += 1
    return least


def synchronize(device: Device) -> None:
    """Waits until the device has done all it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device.torch_device)
    elif device.type == "mps":
        torch.mps.synchronize()


def try_compiler(*, seconds: float = 10.0) -> tuple[bool, str]:
    """Whether a C++ compiler works here, and what was seen.

    Each compiler is tried once a process.

    Args:
        seconds: the longest to wait for it.
    """
    names = filter(None, (os.environ.get("CXX"), "g++", "clang++", "c++", "cl"))
    found = next(((name, path) for name in names if (path := shutil.which(name))), None)
    if found is None:
        return False, "no C++ compiler is installed"
    if found[0] == "cl":
        return True, "cl is installed; it was not tried"
    return _tried(*found, seconds)


@functools.lru_cache
def try_gpu_compiler(device: Device) -> tuple[bool, str]:
    """Whether torch.compile makes a kernel for a GPU here, and what was seen; tried once a process."""
    begin = time.perf_counter()
    try:
        torch.compile(_of_one_line, dynamic=False)(torch.ones(256, device=device.torch_device))
        synchronize(device)
    except Exception as error:
        cause = getattr(error, "inner_exception", error)
        said = str(cause).strip().splitlines() or ["no reason given"]
        return False, f"torch.compile fails: {type(cause).__name__}: {said[0]}"
    return True, f"torch.compile made a kernel in {time.perf_counter() - begin:.1f} s"


def _of_one_line(x: Tensor) -> Tensor:
    return x.sin() + 1


@functools.lru_cache
def _tried(name: str, path: str, seconds: float) -> tuple[bool, str]:
    """Whether this compiler makes a library of one line, and what was seen."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "tried.cpp")
        source.write_text(SOURCE, encoding="utf-8")
        headers = sysconfig.get_path("include")
        command = [
            path,
            "-shared",
            "-fPIC",
            f"-I{headers}",
            str(source),
            "-o",
            str(source.with_suffix(".so")),
        ]
        begin = time.perf_counter()
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
        except subprocess.TimeoutExpired:
            return False, f"{name} had not compiled one line after {seconds:g} s"
        if done.returncode:
            why = next((line for line in done.stderr.splitlines() if "error" in line), "no reason given")
            return False, f"{name} fails: {why.removeprefix(f'{source}:')}"
        return True, f"{name} compiled against Python's headers in {time.perf_counter() - begin:.1f} s"

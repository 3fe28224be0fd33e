"""Peaks that were measured here, in a fraction of a second.

The denominator of an MFU decides what it says, so ours is this machine's own matrix-multiply rate in the
dtype of the run: square matrices large enough to hide every overhead, the best of several short runs,
because what disturbs a measurement only ever makes it slower.
"""

import functools
import time

import torch

from gptwright.hardware.detect import Device

# Sides of the square matrices: large enough to fill the device, and for a CPU a small one too, whose product
# fits into a slice of the scheduler. With another process on one of two cores, 1536 measured 96 GFLOP/s and
# 384 measured 149, where both reach 150 to 170 alone.
SIDES = {"cpu": (384, 1536), "cuda": (4096, 8192), "mps": (2048, 4096)}


@functools.lru_cache
def measure_matmul_peak(device: Device, dtype: torch.dtype, *, seconds: float = 0.6) -> float:
    """The best matrix-multiply rate in FLOP/s that `device` reaches in `dtype`, inputs from a normal law.

    Measured once a process.

    Args:
        device: where to measure.
        dtype: of both inputs and the result.
        seconds: about how long to measure; at least three products a size are timed.
    """
    sides = SIDES[device.type]
    return max(_rate(device, dtype, side, seconds / len(sides)) for side in sides)


def _rate(device: Device, dtype: torch.dtype, side: int, seconds: float) -> float:
    generator = torch.Generator().manual_seed(0)
    a = torch.randn(side, side, generator=generator).to(device.torch_device, dtype)
    b = torch.randn(side, side, generator=generator).to(device.torch_device, dtype)
    out = a @ b
    synchronize(device)
    fastest = float("inf")
    begin = time.perf_counter()
    runs = 0
    while runs < 3 or time.perf_counter() - begin < seconds:
        start = time.perf_counter()
        torch.matmul(a, b, out=out)
        synchronize(device)
        fastest = min(fastest, time.perf_counter() - start)
        runs += 1
    return 2 * side**3 / fastest


def synchronize(device: Device) -> None:
    """Waits until the device has done all it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device.torch_device)
    elif device.type == "mps":
        torch.mps.synchronize()

"""This machine's peaks, measured in the same process as everything that is held against them."""

import os
import platform
from importlib import metadata

import torch

import gptwright
from gptwright.bench.results import Peaks
from gptwright.hardware.detect import Device
from gptwright.hardware.probe import matmul_peak_now, measure_bandwidth
from gptwright.train.precision import choose_dtype

# Long enough for a GPU to reach the clock it keeps, and for a CPU to be left alone once.
SECONDS = 2.0


def measure_peaks(device: Device) -> Peaks:
    """Matrix products and copies on a device, in the dtype that training takes there.

    On a CPU that has bfloat16 in hardware a run may take either; the peak is the higher one's.
    """
    in_hardware = device.type == "cpu" and "bfloat16" in device.native_dtypes
    dtype = "bfloat16" if in_hardware else choose_dtype("auto", device)[0]
    return Peaks(
        machine={
            "device": device.name,
            "threads": torch.get_num_threads(),
            "load_average": os.getloadavg()[0] if hasattr(os, "getloadavg") else "unknown",
            "platform": platform.platform(),
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": metadata.version("numpy"),
            "gptwright": gptwright.__version__,
        },
        dtype=dtype,
        matmul_flops=peak_now(device, dtype),
        bandwidth=measure_bandwidth(device, seconds=SECONDS / 2),
    )


def peak_now(device: Device, dtype: str) -> float:
    """The fastest square matrix product of these seconds, FLOP/s."""
    return matmul_peak_now(device, getattr(torch, dtype), seconds=SECONDS)

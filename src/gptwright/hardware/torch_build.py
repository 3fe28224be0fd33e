"""Which build of torch is installed, seen without importing it: that alone takes a second."""

import importlib.util
from pathlib import Path

# What torch's shared library for NVIDIA's and for AMD's GPUs is called on Linux and on Windows.
GPU_LIBRARIES = ("libtorch_cuda.so", "torch_cuda.dll", "libtorch_hip.so", "torch_hip.dll")


def has_gpu_libraries() -> bool:
    """Whether the installed torch loads libraries for GPUs, also on a machine without one."""
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        return False
    folder = Path(found.origin).parent / "lib"
    return any((folder / name).is_file() for name in GPU_LIBRARIES)

"""Which devices are here, and what each truly has.

`torch.cuda.is_bf16_supported()` says yes on cards that only emulate bfloat16, several times slower than
their float16; here only native support counts.
"""

import platform
from dataclasses import dataclass

import psutil
import torch

from gptwright.errors import DeviceError
from gptwright.hardware.cpu import cpu_name, usable_cores


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One device that can train.

    Attributes:
        type: `cpu`, `cuda` or `mps`.
        index: which of several; None where there is one.
        name: as its maker calls it.
        memory_bytes: its own memory; the machine's for a CPU.
        native_dtypes: dtypes it multiplies in hardware, `float32` first.
        detail: cores and vector instructions, or the compute capability.
    """

    type: str
    index: int | None
    name: str
    memory_bytes: int
    native_dtypes: tuple[str, ...]
    detail: str

    @property
    def torch_device(self) -> torch.device:
        """What torch calls it."""
        return torch.device(self.type if self.index is None else f"{self.type}:{self.index}")


def detect_devices() -> list[Device]:
    """All devices of this machine, the fastest kind first; the CPU is always last."""
    devices = (
        [_cuda(index) for index in range(torch.cuda.device_count())] if torch.cuda.is_available() else []
    )
    if torch.backends.mps.is_available():
        devices.append(_mps())
    return [*devices, _cpu()]


def find_device(request: str) -> Device:
    """The device that `auto`, `cpu`, `cuda`, `cuda:N` or `mps` names.

    Raises:
        DeviceError: it is not here, or it is no device's name.
    """
    devices = detect_devices()
    if request == "auto":
        return devices[0]
    for device in devices:
        if request in (device.type, str(device.torch_device)):
            return device
    here = ", ".join(str(device.torch_device) for device in devices)
    raise DeviceError(
        f"device = {request!r} is not on this machine",
        why=f"torch {torch.__version__} sees: {here}{_why_no_cuda(request)}",
        fix="--device=auto takes the best that is here",
    )


def _why_no_cuda(request: str) -> str:
    if request.startswith("cuda") and torch.version.cuda is None and torch.version.hip is None:
        return "; this torch was built without CUDA"
    return ""


def _cuda(index: int) -> Device:
    properties = torch.cuda.get_device_properties(index)
    with torch.cuda.device(index):
        native_bf16 = torch.cuda.is_bf16_supported(including_emulation=False)
    return Device(
        type="cuda",
        index=index,
        name=properties.name,
        memory_bytes=properties.total_memory,
        native_dtypes=("float32", "float16", "bfloat16") if native_bf16 else ("float32", "float16"),
        detail=f"compute capability {properties.major}.{properties.minor},"
        f" {properties.multi_processor_count} multiprocessors",
    )


def _mps() -> Device:
    return Device(
        type="mps",
        index=None,
        name=f"Apple GPU ({platform.processor() or platform.machine()})",
        memory_bytes=torch.mps.recommended_max_memory(),
        native_dtypes=("float32", "float16"),
        detail="unified memory",
    )


def _cpu() -> Device:
    capabilities = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    native_bf16 = bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))
    return Device(
        type="cpu",
        index=None,
        name=cpu_name(),
        memory_bytes=psutil.virtual_memory().total,
        native_dtypes=("float32", "bfloat16") if native_bf16 else ("float32",),
        detail=f"{usable_cores()} cores, {torch.backends.cpu.get_cpu_capability()}",
    )

"""This machine as facts: devices, what each multiplies in hardware, and the peaks measured just now."""

import importlib.util
import platform

import torch

from gptwright import units
from gptwright.facts import Fact, Origin
from gptwright.hardware.detect import Device, detect_devices
from gptwright.hardware.probe import measure_matmul_peak


def machine_facts() -> list[Fact]:
    """Software first, then each device with its peaks."""
    facts = [
        _fact("python", platform.python_version(), platform.platform()),
        _fact("torch", torch.__version__, _torch_build()),
        _fact("threads", str(torch.get_num_threads()), "that torch uses for one operation"),
        _fact("triton", str(bool(importlib.util.find_spec("triton"))), "torch.compile on a GPU needs it"),
    ]
    for device in detect_devices():
        facts += _device_facts(device)
    return facts


def _torch_build() -> str:
    if torch.version.cuda:
        return f"built for CUDA {torch.version.cuda}"
    return f"built for ROCm {torch.version.hip}" if torch.version.hip else "built for CPU"


def _device_facts(device: Device) -> list[Fact]:
    place = str(device.torch_device)
    facts = [
        _fact(place, device.name, device.detail),
        _fact(f"{place} memory", units.size(device.memory_bytes), "of the device; of the machine for a CPU"),
    ]
    for name in device.native_dtypes:
        peak = measure_matmul_peak(device, getattr(torch, name))
        facts.append(
            Fact(
                name=f"{place} {name} peak",
                value=peak,
                text=units.flops_rate(peak),
                origin=Origin.MEASURED,
                reason="fastest square matrix product just now",
            )
        )
    return facts


def _fact(name: str, text: str, reason: str) -> Fact:
    return Fact(name=name, value=text, text=text, origin=Origin.MEASURED, reason=reason)

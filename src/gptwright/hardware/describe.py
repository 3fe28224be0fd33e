"""This machine as facts: devices, what each multiplies in hardware, what was measured, and what is tabled.

A measured figure stands next to the tabled one. GeForce cards exceed the table by up to 16 %, because they
clock higher than it says; cards for data centres reach 51 to 87 % of it, because their power limit holds them
(the public collections of `families`). Either is a sound denominator of an MFU if it is named.

Cost: about 0.6 s a dtype and 0.3 s a memory, and the compilation of one line.
"""

import importlib.util
import platform
from collections.abc import Iterator

import torch

from gptwright import units
from gptwright.facts import Fact, Origin, tabled
from gptwright.hardware.cpu import cpu_name
from gptwright.hardware.detect import Device, detect_devices
from gptwright.hardware.probe import measure_bandwidth, measure_matmul_peak, try_compiler
from gptwright.hardware.table import DeviceSpec, find_spec, near_names


def machine_facts() -> list[Fact]:
    """Software first, then each device with its peaks."""
    compiles, seen = try_compiler()
    facts = [
        _fact("python", platform.python_version(), platform.platform()),
        _fact("torch", torch.__version__, _torch_build()),
        _fact("threads", str(torch.get_num_threads()), "that torch uses for one operation"),
        _fact("compiler", str(compiles), f"{seen}; torch.compile needs it"),
        _fact("triton", str(bool(importlib.util.find_spec("triton"))), "torch.compile on a GPU needs it"),
    ]
    for device in detect_devices():
        facts += _device_facts(device)
    return facts


def _torch_build() -> str:
    if torch.version.cuda:
        return f"built for CUDA {torch.version.cuda}"
    return f"built for ROCm {torch.version.hip}" if torch.version.hip else "built for CPU"


def _device_facts(device: Device) -> Iterator[Fact]:
    place = str(device.torch_device)
    yield _fact(place, device.name, device.detail)
    yield _fact(f"{place} memory", units.size(device.memory_bytes), "of the device; of the machine for a CPU")
    spec = None
    if device.type != "cpu":
        spec, fact = _in_the_table(device)
        yield fact
    for name in device.native_dtypes:
        yield from _peak_facts(device, name, spec)
    yield from _bandwidth_facts(device, spec)
    yield _bfloat16_fact(device)


def _in_the_table(device: Device) -> tuple[DeviceSpec | None, Fact]:
    """The device's row, and the fact that says which it is or that there is none."""
    name = cpu_name() if device.type == "mps" else device.name
    match = find_spec(name, memory_bytes=None if device.type == "mps" else device.memory_bytes)
    field = f"{device.torch_device} table"
    if match is None:
        near = near_names(name)
        resembles = f"; it has {', '.join(near)}" if near else ""
        reason = f"{name} is not in the table, so an MFU is relative to the measured peak only{resembles}"
        return None, Fact(name=field, value=None, text="unknown", origin=Origin.TABLED, reason=reason)
    spec = match.spec
    reason = f"{spec.source}; taken: {match.assumed}" if match.assumed else spec.source
    return spec, tabled(field, spec.name, spec.name, reason)


def _peak_facts(device: Device, name: str, spec: DeviceSpec | None) -> Iterator[Fact]:
    """The measured peak of a dtype, and the tabled one."""
    place = str(device.torch_device)
    measured = measure_matmul_peak(device, getattr(torch, name))
    yield Fact(
        name=f"{place} {name} peak",
        value=measured,
        text=units.flops_rate(measured),
        origin=Origin.MEASURED,
        reason="fastest square matrix product just now",
        unit="FLOP/s",
    )
    if spec is None:
        return
    # Under this setting a GPU multiplies float32 matrices in TF32 where it can.
    lowered = name == "float32" and torch.get_float32_matmul_precision() != "highest" and spec.native("tf32")
    used = "tf32" if lowered else name
    peak = spec.peak(used)
    if peak is not None:
        reason = f"dense {used} with FP32 accumulation; {units.percent(measured / peak)} of it was measured"
        yield tabled(f"{place} {name} tabled peak", peak, spec.name, reason, unit="FLOP/s")


def _bandwidth_facts(device: Device, spec: DeviceSpec | None) -> Iterator[Fact]:
    place = str(device.torch_device)
    measured = measure_bandwidth(device)
    yield Fact(
        name=f"{place} bandwidth",
        value=measured,
        text=_gigabytes_a_second(measured),
        origin=Origin.MEASURED,
        reason="fastest copy within its memory just now, bytes read and written",
        unit="bytes/s",
    )
    if spec is not None and spec.bandwidth is not None:
        yield Fact(
            name=f"{place} tabled bandwidth",
            value=spec.bandwidth,
            text=_gigabytes_a_second(spec.bandwidth),
            origin=Origin.TABLED,
            reason=f"{units.percent(measured / spec.bandwidth)} of it was measured",
            unit="bytes/s",
            source=f"table:{spec.name}",
        )


def _bfloat16_fact(device: Device) -> Fact:
    field = f"{device.torch_device} bfloat16"
    if "bfloat16" in device.native_dtypes:
        return _fact(field, "native", "multiplied in hardware")
    slower = ", 7 to 9 times slower than float16" if device.type == "cuda" else ""
    return _fact(field, "emulated", f"not in this hardware; torch computes it all the same{slower}")


def _gigabytes_a_second(rate: float) -> str:
    return f"{rate / 1e9:,.1f} GB/s"


def _fact(name: str, text: str, reason: str) -> Fact:
    return Fact(name=name, value=text, text=text, origin=Origin.MEASURED, reason=reason)

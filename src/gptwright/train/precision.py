"""Which dtype multiplies matrices, and whether to compile: each a choice with its reason.

Weights, gradients and the optimizer stay in float32; `autocast` lowers the matrix multiplications only.
float16 needs a gradient scaler, because its smallest numbers are too large for gradients. bfloat16 is never
picked where the hardware only emulates it: 7 to 9 times slower than float16 on the cards concerned.
"""

import contextlib
import importlib.util
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch

from gptwright.errors import DeviceError
from gptwright.facts import Fact, Origin
from gptwright.hardware.detect import Device
from gptwright.hardware.probe import try_compiler, try_gpu_compiler
from gptwright.hardware.table import find_spec


@dataclass(frozen=True, slots=True)
class Precision:
    """How a run computes.

    Attributes:
        device: where.
        dtype: `float32`, `bfloat16` or `float16`.
    """

    device: Device
    dtype: str

    @property
    def torch_dtype(self) -> torch.dtype:
        """What torch calls the dtype."""
        dtype: torch.dtype = getattr(torch, self.dtype)
        return dtype

    def autocast(self) -> AbstractContextManager[object]:
        """The context of a forward pass."""
        if self.dtype == "float32":
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, dtype=self.torch_dtype)

    def scaler(self) -> torch.amp.GradScaler:
        """A gradient scaler that does something for float16 alone."""
        return torch.amp.GradScaler(self.device.type, enabled=self.dtype == "float16")


def choose_dtype(request: str, device: Device) -> tuple[str, str]:
    """The dtype for a request (`auto` or a name) on a device, and why.

    Raises:
        DeviceError: a GPU is asked for a dtype that it would only emulate.
    """
    native = device.native_dtypes
    if device.type == "cpu":
        return _choose_cpu_dtype(request, device)
    if request == "auto":
        if device.type == "mps":
            return "float32", "the safe choice; lower precision has not been tried on Apple GPUs"
        if "bfloat16" in native:
            return "bfloat16", f"{device.name} multiplies it in hardware, and it needs no scaler"
        return "float16", f"{device.name} has no bfloat16 in hardware; a gradient scaler is used"
    if request not in native:
        raise DeviceError(
            f"dtype = {request!r} is not in {device.name}'s hardware",
            why="it would be emulated, several times slower than float16",
            fix=f"--dtype={native[-1]}, or --dtype=auto",
        )
    return request, "asked for"


def dtype_elsewhere(request: str, device: Device) -> str:
    """The dtype of a run's model on a device that may be another than trained it, and lack what was asked."""
    return choose_dtype(request if request in device.native_dtypes else "auto", device)[0]


def _choose_cpu_dtype(request: str, device: Device) -> tuple[str, str]:
    if request == "auto" and "bfloat16" in device.native_dtypes:
        return "float32", "unless a run finds at its start that bfloat16 is quicker for its model"
    if request == "auto":
        return "float32", "this CPU has no other in hardware"
    if request not in device.native_dtypes:
        return "float32", f"{request} is not in this CPU's hardware (nanoGPT ignores dtype on a CPU too)"
    return request, "asked for"


def choose_compile(request: bool | str, device: Device) -> tuple[bool, str]:
    """Whether to compile the model, and why.

    Raises:
        DeviceError: it is asked for and the compiler that it needs is missing.
    """
    if request == "auto" and device.type == "cpu":
        return False, "it takes up to a minute, and only small models' steps get shorter, by a tenth at most"
    if request == "auto" and device.type != "cuda":
        return False, "it has not been tried on Apple GPUs"
    missing = missing_compiler(device) if request else None
    if request == "auto":
        return (False, missing) if missing else (True, "nanoGPT's choice on a GPU")
    if missing:
        raise DeviceError(
            f"compile = True cannot be done here: {missing}",
            why="torch.compile generates code and compiles it on this machine",
            fix="--compile=False, or install what is missing",
        )
    return bool(request), "asked for"


def missing_compiler(device: Device) -> str | None:
    """What torch.compile would need on this device and does not find, if anything."""
    if device.type not in ("cuda", "cpu"):
        return None
    if device.type == "cuda":
        known = find_spec(device.name)
        if known is not None and not known.spec.compiles:
            return f"Triton has no kernels for {known.spec.name}: it needs compute capability 7.0"
        if importlib.util.find_spec("triton") is None:
            return "the package triton is not installed"
    works, seen = try_gpu_compiler(device) if device.type == "cuda" else try_compiler()
    return None if works else seen


def allow_tf32(device: Device) -> None:
    """Lets a GPU multiply float32 matrices as TF32, as nanoGPT does; autocast and CPUs are not touched."""
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")


def orthogonalizing_dtype(device: Device) -> torch.dtype:
    """What Muon multiplies in: bfloat16 where the hardware has it, which its directions do not notice."""
    return torch.bfloat16 if "bfloat16" in device.native_dtypes else torch.float32


def device_fact(device: Device) -> Fact:
    """The device that `auto` takes, as a choice."""
    return Fact(
        name="device",
        value=str(device.torch_device),
        text=f"{device.torch_device}: {device.name}",
        origin=Origin.DERIVED,
        reason="the fastest kind that is here",
    )


def choose_precision(
    *, dtype: str, compile_model: bool | str, device: Device
) -> tuple[Precision, bool, list[Fact]]:
    """Dtype and compilation for a device, with the facts that say why."""
    chosen_dtype, dtype_reason = choose_dtype(dtype, device)
    compiled, compile_reason = choose_compile(compile_model, device)
    facts = [
        Fact(name="dtype", value=chosen_dtype, text=chosen_dtype, origin=Origin.DERIVED, reason=dtype_reason),
        Fact(
            name="compile", value=compiled, text=str(compiled), origin=Origin.DERIVED, reason=compile_reason
        ),
    ]
    return Precision(device, chosen_dtype), compiled, facts

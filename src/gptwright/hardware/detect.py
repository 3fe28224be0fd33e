"""Which devices are here, and what each truly has.

`torch.cuda.is_bf16_supported()` says yes on cards that only emulate bfloat16, several times slower than
their float16; here only native support counts.

Looking makes no card the current one: that alone has the driver set up a context there, some 0.4 GiB, and
under torchrun each process would do so on every card.
"""

import os
import platform
import re
import shutil
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
    """All devices of this machine that torch can use, the fastest kind first; the CPU is always last."""
    devices = [_cuda(index) for index in range(_card_count()) if runs_here(index)]
    if torch.backends.mps.is_available():
        devices.append(_mps())
    return [*devices, _cpu()]


def _card_count() -> int:
    return torch.cuda.device_count() if torch.cuda.is_available() else 0


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
    why = why_no_cuda() if request.startswith("cuda") else None
    raise DeviceError(
        f"device = {request!r} is not on this machine",
        why=f"torch {torch.__version__} sees: {here}" + (f"; {why}" if why else ""),
        fix="--device=auto takes the best that is here",
    )


def use_device(device: Device) -> None:
    """Makes a card the current one, where torch, Triton and NCCL take what is not told which is meant.

    Windows' driver, in WSL too, answers a full card with main memory, and a step takes many times as long
    without a word. There torch's allocator is kept to what is free, so that it says when that is not enough.
    """
    if device.type != "cuda":
        return
    card = device.torch_device
    torch.cuda.set_device(card)
    if platform.system() == "Windows" or "microsoft" in platform.release().lower():
        free, total = torch.cuda.mem_get_info(card)
        own = torch.cuda.memory_reserved(card)
        torch.cuda.set_per_process_memory_fraction(min(1.0, (free + own) / total), card)


def why_no_cuda() -> str | None:
    """Why torch cannot use a GPU of this machine, as far as that can be seen; None where nothing is wrong."""
    if torch.version.cuda is None and torch.version.hip is None:
        return "this torch was built without CUDA"
    old = [index for index in range(_card_count()) if not runs_here(index)]
    if old:
        properties = torch.cuda.get_device_properties(old[0])
        return (
            f"{properties.name} has compute capability {properties.major}.{properties.minor}, and this torch"
            f" was built for {' '.join(torch.cuda.get_arch_list())} alone; another build may have it:"
            " https://pytorch.org/get-started/locally"
        )
    if _card_count():
        return None
    if _hidden():
        return "CUDA_VISIBLE_DEVICES hides every card from it"
    try:
        torch.cuda.init()  # type: ignore[no-untyped-call]
    except RuntimeError as error:
        # Its second sentence names an address for old drivers, whatever the reason was.
        return f"it says: {str(error).split('. ')[0]}"
    return None


def idle_warnings(device: Device, *, asked: str, processes: int) -> list[str]:
    """What of this machine a run leaves idle without having been told to.

    Args:
        device: that it takes.
        asked: the setting that led there.
        processes: how many train together.
    """
    cards = sum(runs_here(index) for index in range(_card_count()))
    if device.type == "cuda" and processes == 1 and cards > 1:
        return [
            f"{cards} GPUs are here and this run uses one, {device.torch_device}: for all of them"
            f" `torchrun --standalone --nproc_per_node={cards} -m gptwright train …`"
        ]
    present = _card_count() or (shutil.which("nvidia-smi") and not _hidden())
    wanted = asked == "auto" and device.type == "cpu" and present
    why = why_no_cuda() if wanted else None
    return [f"this run is on the CPU although there is an NVIDIA GPU: {why}"] if why else []


def runs_here(index: int) -> bool:
    """Whether this torch has code for a card: builds drop older cards, which then fail at their first kernel.

    Most builds of torch 2.11 and newer have none for a V100 and older (pytorch/pytorch#172352). Code for a
    capability runs on cards of the same major number from its minor number on; `compute_NN` is compiled by
    the driver for any card from NN on. ROCm names its own otherwise.
    """
    built_for = torch.cuda.get_arch_list()
    if torch.version.hip is not None or not built_for:
        return True
    properties = torch.cuda.get_device_properties(index)
    major, minor = properties.major, properties.minor
    for name in built_for:
        found = re.fullmatch(r"(sm|compute)_(\d+)(\d)[af]?", name)
        if found is None:
            continue
        of = int(found[2]), int(found[3])
        if of <= (major, minor) and (found[1] == "compute" or of[0] == major):
            return True
    return False


def _hidden() -> bool:
    return os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")


def _cuda(index: int) -> Device:
    properties = torch.cuda.get_device_properties(index)
    # As torch.cuda.is_bf16_supported(including_emulation=False) has it for the current card.
    native_bf16 = torch.version.hip is not None or properties.major >= 8
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

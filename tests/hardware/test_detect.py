"""This machine's own devices, and the messages for those it has not."""

import platform
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from gptwright.errors import DeviceError
from gptwright.hardware.cpu import usable_cores
from gptwright.hardware.detect import Device, detect_devices, find_device, idle_warnings, use_device

CPUINFO = Path("/proc/cpuinfo")
MEMINFO = Path("/proc/meminfo")
no_cuda = pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has CUDA")


def test_the_cpu_comes_last_and_is_this_one() -> None:
    device = detect_devices()[-1]
    assert (device.type, device.index, device.torch_device) == ("cpu", None, torch.device("cpu"))
    assert device.detail == f"{usable_cores()} cores, {torch.backends.cpu.get_cpu_capability()}"


@pytest.mark.skipif(not MEMINFO.exists(), reason="needs Linux")
def test_the_cpus_name_and_memory_are_the_kernels() -> None:
    device = find_device("cpu")
    total = re.search(r"MemTotal:\s+(\d+) kB", MEMINFO.read_text("utf-8"))
    assert total is not None
    assert device.memory_bytes == int(total[1]) * 1024
    model = re.search(r"^model name\s*: (.*)$", CPUINFO.read_text("utf-8"), re.MULTILINE)
    assert device.name == (model[1].strip() if model else platform.processor() or platform.machine())


@pytest.mark.skipif(not CPUINFO.exists(), reason="needs Linux")
def test_bfloat16_is_native_only_with_the_instructions_for_it() -> None:
    flags = CPUINFO.read_text("utf-8").split()
    native = "avx512_bf16" in flags or "amx_bf16" in flags
    assert find_device("cpu").native_dtypes == (("float32", "bfloat16") if native else ("float32",))


def test_auto_takes_the_first() -> None:
    assert find_device("auto") == detect_devices()[0]


def test_a_device_has_torchs_name() -> None:
    card = Device(type="cuda", index=3, name="T4", memory_bytes=1, native_dtypes=("float32",), detail="")
    assert card.torch_device == torch.device("cuda:3")


def message(request: str) -> str:
    with pytest.raises(DeviceError) as caught:
        find_device(request)
    return str(caught.value)


@no_cuda
def test_cuda_that_is_not_here_says_so_and_why() -> None:
    built = "it says: .+" if torch.version.cuda or torch.version.hip else "this torch was built without CUDA"
    others = "mps, " if torch.backends.mps.is_available() else ""
    for request in ("cuda", "cuda:7"):
        assert re.fullmatch(
            f"device = {request!r} is not on this machine\n"
            f"  why: torch {re.escape(torch.__version__)} sees: {others}cpu; {built}\n"
            "  fix: --device=auto takes the best that is here",
            message(request),
        )


@pytest.mark.parametrize("request_", ["tpu", "cpuu", "cpu:1", "cuda:99", "CPU"])
def test_what_is_no_device_here_is_refused(request_: str) -> None:
    text = message(request_)
    assert text.startswith(f"device = {request_!r} is not on this machine\n  why: torch ")
    assert ("built without CUDA" in text) == (
        request_ == "cuda:99" and not torch.version.cuda and not torch.version.hip
    )


def test_several_cards_are_found_by_number(monkeypatch: pytest.MonkeyPatch) -> None:
    def card(index: int) -> Device:
        return Device(
            type="cuda", index=index, name=f"card {index}", memory_bytes=1, native_dtypes=(), detail=""
        )

    cpu = find_device("cpu")
    monkeypatch.setattr("gptwright.hardware.detect.detect_devices", lambda: [card(0), card(1), cpu])
    assert find_device("auto").name == "card 0"
    assert find_device("cuda").name == "card 0"
    assert find_device("cuda:1").name == "card 1"
    assert find_device("cpu") == cpu
    assert "sees: cuda:0, cuda:1, cpu" in message("cuda:2")


# What torch 2.13 was built for with CUDA 13.0.
BUILT_FOR = ["sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120", "compute_120"]


class Cards:
    """torch.cuda on a machine with these cards, of which looking makes none the current one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *capabilities: tuple[int, int]) -> None:
        self.current: list[torch.device] = []
        self.capabilities = capabilities
        patched = {
            "is_available": lambda: bool(capabilities),
            "device_count": lambda: len(capabilities),
            "get_device_properties": self.properties,
            "get_arch_list": lambda: BUILT_FOR,
            "set_device": self.current.append,
            "device": self.refuse,
        }
        for name, value in patched.items():
            monkeypatch.setattr(torch.cuda, name, value)
        monkeypatch.setattr(torch.version, "cuda", "13.0")
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)

    def properties(self, index: int) -> SimpleNamespace:
        major, minor = self.capabilities[index]
        return SimpleNamespace(
            name=f"card {major}.{minor}",
            total_memory=12 * 2**30,
            major=major,
            minor=minor,
            multi_processor_count=46,
        )

    @staticmethod
    def refuse(*_: object) -> None:
        raise AssertionError("a context is made on the card that becomes the current one")


def test_looking_at_cards_makes_no_context_on_any(monkeypatch: pytest.MonkeyPatch) -> None:
    cards = Cards(monkeypatch, (8, 9), (7, 5))
    ada, turing, _ = detect_devices()
    assert ada.native_dtypes == ("float32", "float16", "bfloat16")
    assert turing.native_dtypes == ("float32", "float16")
    assert ada.detail == "compute capability 8.9, 46 multiprocessors"
    assert not cards.current
    use_device(turing)
    assert cards.current == [torch.device("cuda:1")]
    use_device(find_device("cpu"))
    assert len(cards.current) == 1


@pytest.mark.parametrize(
    ("system", "release", "kept"),
    [
        ("Windows", "11", 0.75),
        ("Linux", "5.15.153.1-microsoft-standard-WSL2", 0.75),
        ("Linux", "6.8.0-45-generic", None),
    ],
)
def test_where_a_full_card_goes_on_in_main_memory_it_is_kept_to_its_own(
    monkeypatch: pytest.MonkeyPatch, system: str, release: str, kept: float | None
) -> None:
    Cards(monkeypatch, (8, 9))
    fractions: list[float] = []
    monkeypatch.setattr(platform, "system", lambda: system)
    monkeypatch.setattr(platform, "release", lambda: release)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (8 * 2**30, 12 * 2**30))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: 2**30)
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", lambda part, _: fractions.append(part))
    use_device(find_device("cuda"))
    assert fractions == ([] if kept is None else [kept])


@pytest.mark.parametrize(
    ("capability", "runs"),
    [((6, 1), False), ((7, 0), False), ((7, 5), True), ((8, 9), True), ((9, 0), True), ((12, 1), True)],
)
def test_a_card_that_torch_has_no_code_for_is_not_taken(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], *, runs: bool
) -> None:
    Cards(monkeypatch, capability)
    assert find_device("auto").type == ("cuda" if runs else "cpu")
    if runs:
        return
    major, minor = capability
    why = f"card {major}.{minor} has compute capability {major}.{minor}, and this torch was built for sm_75"
    assert why in message("cuda")
    (warning,) = idle_warnings(find_device("auto"), asked="auto", processes=1)
    assert why in warning
    assert not idle_warnings(find_device("cpu"), asked="cpu", processes=1)


def test_cards_that_a_run_leaves_idle_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    Cards(monkeypatch, (8, 9), (8, 9))
    device = find_device("auto")
    (warning,) = idle_warnings(device, asked="auto", processes=1)
    assert "2 GPUs are here and this run uses one, cuda:0" in warning
    assert "torchrun --standalone --nproc_per_node=2" in warning
    assert not idle_warnings(device, asked="auto", processes=2)


def refused() -> None:
    """As `torch.cuda.init` does where the driver is older than the toolkit."""
    raise RuntimeError(
        "The NVIDIA driver on your system is too old (found version 11040). Please update your GPU driver"
    )


@pytest.mark.parametrize(
    ("built", "why"),
    [
        (None, "this torch was built without CUDA"),
        ("13.0", "it says: The NVIDIA driver on your system is too old (found version 11040)"),
    ],
)
def test_a_card_that_torch_cannot_reach_is_no_secret(
    monkeypatch: pytest.MonkeyPatch, built: str | None, why: str
) -> None:
    Cards(monkeypatch)
    monkeypatch.setattr(torch.version, "cuda", built)
    monkeypatch.setattr(torch.cuda, "init", refused)
    monkeypatch.setattr(shutil, "which", lambda _: "/usr/bin/nvidia-smi")
    (warning,) = idle_warnings(find_device("auto"), asked="auto", processes=1)
    assert why in warning
    assert why in message("cuda")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert not idle_warnings(find_device("auto"), asked="auto", processes=1)
    assert built is None or "CUDA_VISIBLE_DEVICES hides every card" in message("cuda")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert not idle_warnings(find_device("auto"), asked="auto", processes=1)

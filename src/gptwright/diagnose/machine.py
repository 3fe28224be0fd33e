"""Which device a run used, and the peak that an MFU is measured against there."""

from dataclasses import dataclass

from gptwright.diagnose.settings import Settings
from gptwright.facts import Fact, Origin, tabled
from gptwright.hardware.table import DeviceSpec, Match, devices_in, find_spec, is_cpu_name


@dataclass(frozen=True, slots=True)
class Machine:
    """The device of a run.

    Attributes:
        name: as somebody states it, or as the log prints it.
        logged_name: as the log prints it.
        spec: its row in the table; None for a CPU and for what the table does not have.
        assumed: what the name leaves open and was assumed.
        is_cpu: whether it is a CPU.
        count: how many devices train together.
        count_known: whether anything says so.
        processes: their number where the log's own numbers give it away.
        dtype: of the matrix multiplications.
        peak: its dense peak in that dtype with float32 accumulation, in FLOP/s; in the dtype that it trains
            in best where it has no such product in this one.
    """

    name: Fact | None
    logged_name: Fact | None
    spec: DeviceSpec | None
    assumed: str | None
    is_cpu: bool
    count: int
    count_known: bool
    dtype: str | None
    peak: Fact | None
    processes: Fact | None = None


def machine_of(settings: Settings, *, measured_here: bool) -> Machine:
    """The device that the facts and the log name, with its peak in the run's dtype.

    Args:
        settings: log, config and stated facts.
        measured_here: whether the peak that the log prints was measured on the run's own device.
    """
    name, logged_name = settings.stated.get("device"), settings.logged.get("device")
    name = name or logged_name
    text = str(name.value) if name is not None else ""
    match = find_spec(text) if text else None
    is_cpu = is_cpu_name(text) or (match is None and settings.word("device") == "cpu")
    count = settings.integer("device_count") or settings.integer("world_size") or devices_in(text)
    dtype = _dtype(settings, match, is_cpu)
    measured = settings.logged.get("mfu_peak_flops") if measured_here else None
    return Machine(
        name=name,
        logged_name=logged_name,
        spec=match.spec if match else None,
        assumed=match.assumed if match else None,
        is_cpu=is_cpu,
        count=count or 1,
        count_known=count is not None,
        dtype=dtype,
        peak=(peak_fact(match.spec, dtype) if match and dtype else None) or measured,
    )


def peak_fact(spec: DeviceSpec, dtype: str) -> Fact | None:
    """The device's dense peak in a dtype; float32 runs multiply in TF32 where the hardware has it.

    Both nanoGPT and this project allow TF32. A dtype that the device only emulates has no peak of its own;
    what the device could do instead is what such a run is short of.
    """
    used = "tf32" if dtype == "float32" and spec.native("tf32") else dtype
    remark = ""
    if not spec.native(used):
        remark = f" (there is none in {used})"
        used = spec.training_dtype
    peak = spec.peak(used)
    if peak is None:
        return None
    return Fact(
        name="peak_flops",
        value=peak,
        text=f"{peak / 1e12:.1f} TFLOP/s",
        origin=Origin.TABLED,
        reason=f"{spec.name}, dense {used} with float32 accumulation{remark}: {spec.source}",
        unit="FLOP/s",
        source=f"table:{spec.name}",
    )


def memory_fact(spec: DeviceSpec) -> Fact | None:
    """The device's memory as sold, in bytes."""
    if spec.memory_bytes is None:
        return None
    return tabled("device_memory_bytes", spec.memory_bytes, spec.name, spec.source, unit="bytes")


def _dtype(settings: Settings, match: Match | None, is_cpu: bool) -> str | None:
    """The configured dtype; else the one that trainers take on this device."""
    word = settings.word("dtype")
    if is_cpu:
        return "float32" if word in (None, "auto", "float16") else word
    if word in ("float32", "bfloat16", "float16"):
        return word
    return match.spec.training_dtype if match else None

"""The device that a plan is for: named by a person, or the one in this machine, looked up without torch."""

import functools
import shutil
import subprocess
from dataclasses import dataclass

from gptwright.config.schema import TrainConfig
from gptwright.facts import Fact, Origin, stated, tabled
from gptwright.hardware.cpu import cpu_memory_bytes, cpu_name, measure_cpu_peak
from gptwright.hardware.table import DeviceSpec, find_spec, near_names

# Names that mean a kind of device and not a model of it.
KINDS = ("auto", "cpu", "cuda", "mps", "gpu")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanDevice:
    """What a plan counts on.

    Attributes:
        name: as the person or the machine calls it.
        kind: `cuda`, `cpu` or `mps`.
        count: how many train together.
        dtype: of the matrix multiplications.
        compiled: whether the model is compiled.
        peak: dense peak in that dtype, FLOP/s, or in its best where it is emulated; None where the device is
            unknown.
        emulated: whether the device has no products of that dtype; how fast it is then is not known.
        bandwidth: of its memory, bytes/s.
        memory: its own, bytes.
        power_watts: the board's limit.
        family: for the model of efficiency.
        remark: what was assumed about the name, or why nothing is known.
    """

    name: Fact
    kind: str
    count: int
    dtype: str
    compiled: bool
    peak: Fact | None
    emulated: bool
    bandwidth: float | None
    memory: Fact | None
    power_watts: float | None
    family: str | None
    remark: str | None


def plan_device(config: TrainConfig, *, name: str | None, count: int) -> PlanDevice:
    """The device named, else this machine's."""
    here_too = name is None or name.lower() in KINDS or name == cpu_name()
    if name is not None and not here_too:
        return _named(config, stated("device", name), count)
    if config.device != "cpu" and (name is None or name.lower() in ("auto", "cuda", "gpu")):
        here = _nvidia_here()
        if here is not None:
            fact = Fact(
                name="device",
                value=here,
                text=here,
                origin=Origin.MEASURED,
                reason="nvidia-smi",
                source="derived",
            )
            return _named(config, fact, count)
    return _this_cpu(config, count)


@functools.lru_cache
def _nvidia_here() -> str | None:
    """The name of this machine's first NVIDIA GPU, as its driver tells it."""
    command = shutil.which("nvidia-smi")
    if command is None:
        return None
    query = [command, "--query-gpu=name", "--format=csv,noheader"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=5, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.splitlines()[0].strip() if answer.strip() else None


def _named(config: TrainConfig, name: Fact, count: int) -> PlanDevice:
    match = find_spec(str(name.value))
    compiled = config.compile is not False
    if match is None:
        near = near_names(str(name.value))
        hint = f"; near it: {', '.join(near)}" if near else ""
        return PlanDevice(
            name=name,
            kind="cuda",
            count=count,
            dtype="bfloat16" if config.dtype == "auto" else config.dtype,
            compiled=compiled,
            peak=None,
            emulated=False,
            bandwidth=None,
            memory=None,
            power_watts=None,
            family=None,
            remark=f"{name.text} is not in the table{hint}",
        )
    spec = match.spec
    dtype = spec.training_dtype if config.dtype == "auto" else config.dtype
    used = "tf32" if dtype == "float32" and spec.native("tf32") else dtype
    native = spec.native(used)
    if not native:
        used = spec.training_dtype
    reason = f"dense {used} with float32 accumulation; {spec.source}"
    memory = None
    if spec.memory_bytes is not None:
        memory = tabled("device_bytes", spec.memory_bytes, spec.name, spec.source, unit="bytes")
    return PlanDevice(
        name=name,
        kind="mps" if spec.vendor == "apple" else "cuda",
        count=count,
        dtype=dtype,
        compiled=compiled and spec.vendor != "apple" and spec.compiles,
        peak=tabled("peak_flops", spec.peaks[used], spec.name, reason, unit="FLOP/s"),
        emulated=not native,
        bandwidth=spec.bandwidth,
        memory=memory,
        power_watts=spec.power_watts,
        family=spec.family,
        remark=match.assumed if native else _emulated(spec, dtype),
    )


def _emulated(spec: DeviceSpec, dtype: str) -> str:
    """Why nothing is known of a dtype that the device does not multiply with float32 accumulation."""
    return (
        f"{spec.name} has no {dtype} products of its own, and how fast it emulates them is not published;"
        f" --dtype={spec.training_dtype} can be planned"
    )


def _this_cpu(config: TrainConfig, count: int) -> PlanDevice:
    """This machine's CPU, its peak measured just now with numpy's matrix product."""
    peak, memory = measure_cpu_peak(), cpu_memory_bytes()
    name = cpu_name()
    return PlanDevice(
        name=_measured("device", name, name, "this machine's CPU"),
        kind="cpu",
        count=count,
        dtype="float32" if config.dtype in ("auto", "float16") else config.dtype,
        compiled=config.compile is True,
        peak=_measured(
            "peak_flops", peak, f"{peak / 1e9:.0f} GFLOP/s", "fastest float32 matrix product just now"
        ),
        emulated=False,
        bandwidth=None,
        memory=(
            _measured("device_bytes", memory, f"{memory / 2**30:.1f} GiB", "this machine's memory")
            if memory is not None
            else None
        ),
        power_watts=None,
        family=None,
        remark=None,
    )


def _measured(name: str, value: float | str, text: str, reason: str) -> Fact:
    return Fact(name=name, value=value, text=text, origin=Origin.MEASURED, reason=reason, source="derived")

"""The device that a plan is for: named by a person, or the one in this machine, looked up without torch."""

from dataclasses import dataclass, replace

from gptwright import units
from gptwright.config.schema import TrainConfig
from gptwright.facts import Fact, Origin, derived, stated, tabled
from gptwright.hardware.cpu import (
    cpu_memory_bytes,
    cpu_name,
    has_bfloat16,
    has_matrix_registers,
    measure_cpu_peak,
    usable_cores,
)
from gptwright.hardware.kernels import dtype_of_kernels, missing_for_kernels, setting_against_kernels
from gptwright.hardware.nvidia import visible_cards
from gptwright.hardware.table import (
    DeviceSpec,
    Match,
    find_spec,
    is_apple_name,
    is_cpu_name,
    near_names,
)

# Names that mean a kind of device and not a model of it.
KINDS = ("auto", "cpu", "cuda", "mps", "gpu")
# Of bfloat16 over float32 on a CPU that has it: VDPBF16PS adds two products to each float32 where VFMADD adds
# one (Intel's and AMD's manuals of the instruction set).
BFLOAT16_RATE = 2
# With matrix registers (AMX): what torch reached over what numpy did on the one such CPU that was measured.
MATRIX_RATE = 8
MOST_CARDS = "most cards of today multiply in it"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanDevice:
    """What a plan counts on.

    Attributes:
        name: as the person or the machine calls it.
        kind: `cuda`, `cpu` or `mps`.
        count: how many train together.
        dtype: of the matrix multiplications.
        kernels: whether our own kernels do what is between them.
        products: the same in words, and why it is so.
        compiled: whether the model is compiled.
        peak: dense peak in that dtype, FLOP/s, or in its best where it is emulated; None where the device is
            unknown.
        emulated: whether the device has no products of that dtype; how fast it is then is not known.
        vector_peak: of a CPU's vectors in that dtype where matrix registers make its products; else None.
        bandwidth: of its memory, bytes/s.
        memory: its own as sold, bytes.
        available: what a driver reports of that, or the system lets it have, bytes.
        power_watts: the board's limit.
        least_clock: what the limit of a laptop's maker may leave of the clock; 1 for all else.
        family: for the model of efficiency.
        remark: what was assumed about the name, or why nothing is known.
    """

    name: Fact
    kind: str
    count: int
    dtype: str
    kernels: bool
    products: Fact
    compiled: bool
    peak: Fact | None
    emulated: bool
    vector_peak: float | None
    bandwidth: float | None
    memory: Fact | None
    available: int | None
    power_watts: float | None
    least_clock: float
    family: str | None
    remark: str | None


def plan_device(config: TrainConfig, *, name: str | None, count: int, peak: Fact | None = None) -> PlanDevice:
    """The device named, else this machine's.

    Args:
        config: the settings.
        name: of the device, where somebody named one.
        count: how many train together.
        peak: of this CPU, measured in the dtype that a run chose; `config` then names all of its choice.
    """
    if peak is not None:
        return _this_cpu(config, _chosen(config), count, peak)
    here_too = name is None or name.lower() in KINDS or name == cpu_name()
    if name is not None and not here_too:
        return _named(config, stated("device", name), count)
    kind = name.lower() if name is not None and name.lower() in KINDS else config.device.partition(":")[0]
    if kind == "mps":
        return _mps_here(config, count)
    if kind != "cpu" and name != cpu_name():
        cards, number = visible_cards(), config.device.partition(":")[2]
        index = int(number) if number.isdecimal() else 0
        if index < len(cards):
            which = f"nvidia-smi; cuda:{index} of {len(cards)}" if len(cards) > 1 else "nvidia-smi"
            here = _measured("device", cards[index], cards[index], which)
            return _named(config, here, count)
        if kind in ("cuda", "gpu"):
            missing = f"{kind} is asked for, this machine has no such GPU, and none is named: --device NAME"
            return _not_known(config, stated("device", kind), count, kind="cuda", remark=missing)
    way = _expected(config)
    return _this_cpu(config, way, count, _cpu_peak(way.dtype, config.threads))


def _mps_here(config: TrainConfig, count: int) -> PlanDevice:
    """The GPU of the Apple chip in this machine, if it is one."""
    if find_spec(cpu_name()) is not None:
        return _named(config, _measured("device", cpu_name(), cpu_name(), "this machine's chip"), count)
    missing = "mps is asked for, this is no Apple machine, and none is named: --device 'M2 16GB'"
    return _not_known(config, stated("device", "mps"), count, kind="mps", remark=missing)


def _not_known(config: TrainConfig, name: Fact, count: int, *, kind: str, remark: str) -> PlanDevice:
    """A device of which nothing is known but its kind."""
    usual, why = ("float32", "what it trains in without more") if kind != "cuda" else ("bfloat16", MOST_CARDS)
    dtype = usual if config.dtype == "auto" else config.dtype
    return PlanDevice(
        name=name,
        kind=kind,
        count=count,
        dtype=dtype,
        kernels=False,
        products=_products(config, dtype, Origin.ASSUMED, why),
        compiled=config.compile is not False if kind == "cuda" else config.compile is True,
        peak=None,
        emulated=False,
        vector_peak=None,
        bandwidth=None,
        memory=None,
        available=None,
        power_watts=None,
        least_clock=1.0,
        family=None,
        remark=remark,
    )


def _with_memory(name: str) -> str:
    """A device's name and its memory, by which people tell one from another: `RTX 4060 (8 GB)`."""
    match = find_spec(name)
    memory = match.spec.memory_bytes if match is not None else None
    return name if memory is None or "GB" in name else f"{name} ({memory / 2**30:.0f} GB)"


def _named(config: TrainConfig, name: Fact, count: int) -> PlanDevice:
    match = find_spec(str(name.value))
    compiled = config.compile is not False
    if match is None and is_cpu_name(str(name.value)):
        remark = f"{name.text} is a processor, and what one reaches is measured where it is"
        return _not_known(config, name, count, kind="cpu", remark=remark)
    if match is None:
        near = [_with_memory(one) for one in near_names(str(name.value))]
        hint = f"; near it: {', '.join(near)}" if near else ""
        remark = f"{name.text} is not in the table{hint}"
        kind = "mps" if is_apple_name(str(name.value)) else "cuda"
        return _not_known(config, name, count, kind=kind, remark=remark)
    spec = match.spec
    best, origin, why = _usual_dtype(spec)
    dtype = best if config.dtype == "auto" else config.dtype
    used = "tf32" if dtype == "float32" and spec.native("tf32") else dtype
    native = spec.native(used)
    if not native:
        used = spec.training_dtype
    reason = f"dense {used} with float32 accumulation; {spec.source}"
    return PlanDevice(
        name=_with_what_is_assumed(name, match),
        kind="mps" if spec.vendor == "apple" else "cuda",
        count=count,
        dtype=dtype,
        kernels=False,
        products=_products(config, dtype, origin, why),
        compiled=compiled and spec.vendor != "apple" and spec.compiles,
        peak=tabled("peak_flops", spec.peaks[used], spec.name, reason, unit="FLOP/s"),
        emulated=not native,
        vector_peak=None,
        bandwidth=spec.bandwidth,
        memory=_memory_of(spec),
        available=spec.available_bytes,
        power_watts=spec.power_watts,
        least_clock=spec.least_clock,
        family=spec.family,
        remark=match.assumed if native else _emulated(spec, dtype),
    )


def _with_what_is_assumed(name: Fact, match: Match) -> Fact:
    """The device's name, with what was taken for granted where it leaves something open."""
    return replace(name, reason=f"{name.reason}; assumed: {match.assumed}") if match.assumed else name


def _usual_dtype(spec: DeviceSpec) -> tuple[str, Origin, str]:
    """What training multiplies in where nobody says it, and why."""
    if spec.vendor == "apple":
        return "float32", Origin.ASSUMED, "what train takes, as lower precision was not tried on Apple GPUs"
    return spec.training_dtype, Origin.TABLED, f"what {spec.name} trains in best"


def _memory_of(spec: DeviceSpec) -> Fact | None:
    """The memory as sold, with why a run cannot have all of it."""
    if spec.memory_bytes is None or spec.available_bytes is None:
        return None
    some = units.size(spec.available_bytes)
    if spec.shared:
        fact = stated("device_bytes", spec.memory_bytes, unit="bytes")
        whose = "macOS recommends the GPU to take" if spec.vendor == "apple" else "Linux lets the GPU take"
        return replace(fact, reason=f"stated; {whose} {some} of it")
    reason = f"{spec.source}; {some} are left beside error correction" if spec.ecc else spec.source
    return tabled("device_bytes", spec.memory_bytes, spec.name, reason, unit="bytes")


def _emulated(spec: DeviceSpec, dtype: str) -> str:
    """Why nothing is known of a dtype that the device does not multiply with float32 accumulation."""
    return (
        f"{spec.name} has no {dtype} products of its own, and how fast it emulates them is not published;"
        f" --dtype={spec.training_dtype} can be planned"
    )


@dataclass(frozen=True, slots=True)
class _Way:
    """How a CPU's step multiplies: the dtype, whether our own kernels are between the products, and why."""

    dtype: str
    kernels: bool
    origin: Origin
    reason: str

    def fact(self) -> Fact:
        """In words."""
        how = f"{self.dtype} with our own kernels" if self.kernels else self.dtype
        return Fact(name="dtype", value=self.dtype, text=how, origin=self.origin, reason=self.reason)


def _chosen(config: TrainConfig) -> _Way:
    """The way of a run that has made its choice."""
    return _Way(config.dtype, config.kernels is True, Origin.MEASURED, "chosen by this run at its start")


def _expected(config: TrainConfig) -> _Way:
    """The way that a run will most likely choose on this CPU.

    A run times torch's float32 against our own kernels, in bfloat16 where the CPU has it. With them that is
    the quicker one; bfloat16 without them depends on the model, and float32 is planned.
    """
    narrow = has_bfloat16()
    dtype = dtype_of_kernels(config, bfloat16=narrow)
    against = setting_against_kernels(config, dtype) or missing_for_kernels()
    if against is None:
        has = "this CPU has it in hardware" if narrow else "this CPU has no other in hardware"
        origin, why = (Origin.DERIVED, has) if config.dtype == "auto" else (Origin.CONFIGURED, "asked for")
        reason = f"{why}, and a compiler is here; a run times our own kernels and takes the quickest"
        return _Way(dtype, True, origin, reason)
    if config.dtype == "float32":
        return _Way("float32", False, Origin.CONFIGURED, f"asked for; not with our own kernels: {against}")
    if not narrow:
        return _Way("float32", False, Origin.DERIVED, "this CPU has no other in hardware")
    if config.dtype == "float16":
        return _Way("float32", False, Origin.DERIVED, "this CPU has no float16 in hardware")
    if config.dtype == "bfloat16":
        return _Way("bfloat16", False, Origin.CONFIGURED, f"asked for; not with our own kernels: {against}")
    reason = f"not bfloat16 with our own kernels: {against}; a run times bfloat16 without them"
    return _Way("float32", False, Origin.DERIVED, reason)


def _cpu_peak(dtype: str, threads: int) -> Fact:
    """What this CPU reaches in a dtype, from numpy's float32 product, measured just now.

    Args:
        dtype: of the products.
        threads: that the run is to have; 0 for as many as there are cores.
    """
    peak, share = measure_cpu_peak(), _share_of_cores(threads)
    measured = "the fastest float32 matrix product just now"
    if share < 1:
        measured += f", on {threads} of {usable_cores()} cores"
    if dtype == "float32":
        if share < 1:
            formula = f"{share:.2g} × {units.flops_rate(peak)}, {measured}"
            return derived("peak_flops", share * peak, formula, unit="FLOP/s")
        return _measured("peak_flops", peak, units.flops_rate(peak), measured.removeprefix("the "))
    rate, why = BFLOAT16_RATE, "an instruction makes two products of bfloat16 where it makes one of float32"
    if _by_matrix_registers(dtype):
        rate, why = MATRIX_RATE, "so many times it on the one CPU with AMX that was measured"
    formula = f"{rate * share:.3g} × {units.flops_rate(peak)}, {measured}: {why}"
    return derived("peak_flops", rate * share * peak, formula, unit="FLOP/s")


def _share_of_cores(threads: int) -> float:
    """Of this process's cores, what a run with so many threads uses; of 0, all."""
    return min(1.0, threads / usable_cores()) if threads else 1.0


def _by_matrix_registers(dtype: str) -> bool:
    return dtype == "bfloat16" and has_matrix_registers()


def _this_cpu(config: TrainConfig, way: _Way, count: int, peak: Fact) -> PlanDevice:
    """This machine's CPU."""
    name, memory = cpu_name(), cpu_memory_bytes()
    vectors = None
    if _by_matrix_registers(way.dtype):
        vectors = BFLOAT16_RATE * _share_of_cores(config.threads) * measure_cpu_peak()
    return PlanDevice(
        name=_measured("device", name, name, "this machine's CPU"),
        kind="cpu",
        count=count,
        dtype=way.dtype,
        kernels=way.kernels,
        products=way.fact(),
        compiled=config.compile is True,
        peak=peak,
        emulated=False,
        vector_peak=vectors,
        bandwidth=None,
        memory=(
            _measured("device_bytes", memory, f"{memory / 2**30:.1f} GiB", "this machine's memory")
            if memory is not None
            else None
        ),
        available=memory,
        power_watts=None,
        least_clock=1.0,
        family=None,
        remark=None,
    )


def _products(config: TrainConfig, dtype: str, origin: Origin, reason: str) -> Fact:
    """The dtype of a GPU's products: what was asked for, else what the device is taken to do best."""
    if config.dtype != "auto":
        origin, reason = Origin.CONFIGURED, "asked for"
    return Fact(name="dtype", value=dtype, text=dtype, origin=origin, reason=reason)


def _measured(name: str, value: float | str, text: str, reason: str) -> Fact:
    return Fact(name=name, value=value, text=text, origin=Origin.MEASURED, reason=reason, source="derived")

"""Devices that simulated runs happen on, with their true peaks and those that trainers believe.

Peaks are dense, float16 or bfloat16 in, float32 accumulation: SMs × boost clock × 512 (GeForce) or 1,024 to
4,096 FLOPs a clock, as in the vendors' whitepapers (NVIDIA Ampere GA102, Ada, Hopper, RTX Blackwell v1.1).
`reachable` is the share of it that a large matrix product was measured to reach (public torch benchmarks:
GeForce at or above its official boost, A100 0.79 to 0.87, H100 0.77 to 0.83, L40S 0.70, MI300X 0.51 to 0.60).
What trainers believe was read in nanochat's common.py, llm.c's mfu.h and torchtitan's tools/utils.py.
A CPU's peak stands in no table; the one here only decides how fast a simulated run is.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

TERA = 1e12
GIB = 2**30
A100_PEAK = 312e12


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One kind of device.

    Attributes:
        name: as a person says it.
        logged: as the driver reports it.
        kind: `cpu`, `consumer` or `datacenter`.
        peak_flops: dense peak in FLOP/s of the dtype that trainers use on it.
        memory_gib: its memory in GiB as sold.
        multiprocessors: streaming multiprocessors; 0 where there are none.
        bf16: whether it multiplies bfloat16 in hardware.
        reachable: the share of the peak that large matrix products reach.
        nanochat_peak: FLOP/s in nanochat's table; infinite where it has none.
        llmc_peak: FLOP/s in llm.c's table; None where it prints -100 %.
        titan_peak: FLOP/s in torchtitan's table; an A100's where it has none.
    """

    name: str
    logged: str
    kind: str
    peak_flops: float
    memory_gib: float
    multiprocessors: int = 0
    bf16: bool = True
    reachable: float = 1.0
    nanochat_peak: float = float("inf")
    llmc_peak: float | None = None
    titan_peak: float = A100_PEAK

    @property
    def tabled(self) -> bool:
        """Whether published tables know its peak."""
        return self.kind != "cpu"


def _geforce(
    model: str,
    peak: float,
    memory: float,
    multiprocessors: int,
    *,
    nanochat: float | None = None,
    llmc: bool = True,
) -> Device:
    return Device(
        name=f"RTX {model}",
        logged=f"NVIDIA GeForce RTX {model}",
        kind="consumer",
        peak_flops=peak * TERA,
        memory_gib=memory,
        multiprocessors=multiprocessors,
        nanochat_peak=nanochat * TERA if nanochat else float("inf"),
        llmc_peak=peak * TERA if llmc else None,
    )


def _cpu(name: str, peak: float) -> Device:
    return Device(name=name, logged=name, kind="cpu", peak_flops=peak * TERA, memory_gib=16, bf16=False)


ALL: tuple[Device, ...] = (
    _geforce("3060", 25.5, 12, 28),
    _geforce("3070", 40.6, 8, 46),
    _geforce("3080", 59.5, 10, 68),
    _geforce("3090", 71.2, 24, 82, nanochat=71),
    _geforce("4060", 30.2, 8, 24),
    _geforce("4060 Ti", 44.1, 16, 34),
    _geforce("4070", 58.3, 12, 46),
    _geforce("4070 SUPER", 71.0, 12, 56),
    _geforce("4070 Ti", 80.2, 12, 60),
    _geforce("4080", 97.5, 16, 76),
    _geforce("4090", 165.2, 24, 128, nanochat=165.2),
    _geforce("5070", 61.7, 12, 48, llmc=False),
    _geforce("5080", 112.6, 16, 84, llmc=False),
    _geforce("5090", 209.5, 32, 170, nanochat=209.5, llmc=False),
    Device(
        name="RTX 2080 Ti",
        logged="NVIDIA GeForce RTX 2080 Ti",
        kind="consumer",
        peak_flops=53.8e12,
        memory_gib=11,
        multiprocessors=68,
        bf16=False,
    ),
    Device(
        name="Tesla V100-SXM2-16GB",
        logged="Tesla V100-SXM2-16GB",
        kind="datacenter",
        peak_flops=125e12,
        memory_gib=16,
        multiprocessors=80,
        bf16=False,
        reachable=0.74,
        llmc_peak=125e12,
    ),
    Device(
        name="Tesla T4",
        logged="Tesla T4",
        kind="datacenter",
        peak_flops=65e12,
        memory_gib=16,
        multiprocessors=40,
        bf16=False,
        reachable=0.7,
    ),
    Device(
        name="L40S",
        logged="NVIDIA L40S",
        kind="datacenter",
        peak_flops=362e12,
        memory_gib=48,
        multiprocessors=142,
        reachable=0.7,
        nanochat_peak=362e12,
    ),
    Device(
        name="RTX A6000",
        logged="NVIDIA RTX A6000",
        kind="datacenter",
        peak_flops=154.8e12,
        memory_gib=48,
        multiprocessors=84,
        reachable=0.85,
        llmc_peak=77.1e12,
        titan_peak=154.85e12,
    ),
    Device(
        name="A100",
        logged="NVIDIA A100-SXM4-80GB",
        kind="datacenter",
        peak_flops=312e12,
        memory_gib=80,
        multiprocessors=108,
        reachable=0.83,
        nanochat_peak=312e12,
        llmc_peak=312e12,
    ),
    Device(
        name="H100",
        logged="NVIDIA H100 80GB HBM3",
        kind="datacenter",
        peak_flops=989.4e12,
        memory_gib=80,
        multiprocessors=132,
        reachable=0.8,
        nanochat_peak=989e12,
        llmc_peak=989e12,
        titan_peak=989e12,
    ),
    Device(
        name="MI300X",
        logged="AMD Instinct MI300X",
        kind="datacenter",
        peak_flops=1307.4e12,
        memory_gib=192,
        bf16=True,
        reachable=0.56,
        nanochat_peak=1307.4e12,
        titan_peak=1300e12,
    ),
    _cpu("laptop CPU", 0.35),
    _cpu("Intel Core i7-12700H", 0.6),
    _cpu("AMD Ryzen 7 5800X", 0.9),
)
BY_NAME: Mapping[str, Device] = MappingProxyType({device.name: device for device in ALL})

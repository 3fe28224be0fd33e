"""What devices of one architecture have in common, beyond their peak, when they train.

`reach` is measured, not fitted: the best rate of large torch products over the dense peak, from three public
collections (zzc0721/torch-performance-test-data, mag-/gpu_benchmark, ml-engineering's MAMF table). A
GeForce's clock beats its specification; a data-centre card has less power than its tensor cores would take.
Turing's workstation rate is between what such cards hold for seconds (T4 0.66, TITAN RTX 0.51) and for long
(T4 0.37, which NVIDIA's forum calls expected in topic 264462; TITAN RTX 0.35). A GB10's is less
than its products reach for seconds too (0.78): two published trainings got 0.27 and 0.28 of the peak, which
this meets within 13 %.
Families are named as `gpus.toml` names them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One architecture.

    Attributes:
        reach: share of the dense peak that large products reach at the power that they want.
        rate: 16-bit FLOPs per multiprocessor and clock over a GeForce's 512. The faster a multiprocessor, the
            wider a product must be to keep it busy.
        float32_rate: the same for float32 products, in TF32 where there is one.
        watts: per peak TFLOP/s; with less, clocks fall. 0 where that was not seen. Fitted for the generations
            that `speeds.toml` has at several power limits, else the power at which `reach` was measured.
        link: bytes/s each way between devices, taken for granted: two thirds of NVLink's nominal rate, or
            PCIe 4.0 through the host.
        known: published training speeds of this family were fitted.
    """

    reach: float
    rate: float
    float32_rate: float
    watts: float = 0.0
    link: float = 12e9
    known: bool = True


FAMILIES: Mapping[str, Family] = MappingProxyType(
    {
        "Volta": Family(reach=0.80, rate=2, float32_rate=0.25, link=100e9),
        "Turing GeForce": Family(reach=0.97, rate=1, float32_rate=0.25, known=False),
        "Turing pro": Family(reach=0.5, rate=2, float32_rate=0.25, known=False),
        "GA100": Family(reach=0.87, rate=4, float32_rate=2, watts=1.28, link=200e9),
        "Ampere GeForce": Family(reach=1.07, rate=1, float32_rate=0.5, watts=2.30),
        "Ampere pro": Family(reach=1.0, rate=2, float32_rate=1, watts=2.30),
        "Ada GeForce": Family(reach=1.07, rate=1, float32_rate=0.5, watts=2.16),
        "Ada pro": Family(reach=1.0, rate=2, float32_rate=1, watts=2.16),
        "Hopper": Family(reach=0.81, rate=8, float32_rate=4, watts=0.71, link=300e9),
        "Blackwell data centre": Family(reach=0.765, rate=16, float32_rate=8, watts=0.44, link=600e9),
        "Blackwell GeForce": Family(reach=1.07, rate=1, float32_rate=0.5, watts=2.16),
        "Blackwell pro": Family(reach=1.0, rate=2, float32_rate=1, watts=2.16),
        "Blackwell SoC": Family(reach=0.5, rate=2, float32_rate=1, known=False),
        "RDNA 3": Family(reach=0.81, rate=1, float32_rate=0.5, known=False),
        "RDNA 3.5": Family(reach=0.54, rate=1, float32_rate=0.5, known=False),
        "CDNA 3": Family(reach=0.56, rate=4, float32_rate=2, link=100e9, known=False),
        "Xe HPG": Family(reach=0.65, rate=4, float32_rate=0.5, known=False),
        "Apple": Family(reach=0.79, rate=0.5, float32_rate=0.5, known=False),
    }
)
# The middle of the above, for an architecture that nobody measured.
OTHER = Family(reach=0.85, rate=2, float32_rate=0.5, known=False)

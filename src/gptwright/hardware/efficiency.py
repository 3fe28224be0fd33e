"""How fast a GPT of a given shape trains on a device of a given peak, with how sure that is.

The likely speed is a step's tokens over its modelled time (`step_time.py`). The band around it is what
published runs scatter by, and wider where less is known. docs/throughput.md has the tables.

Cost: microseconds; no torch, no numpy.
"""

from dataclasses import dataclass

from gptwright.hardware.step_time import FITTED, IN_A_MACHINE, StepTime, Work, step_time


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """Tokens per second over all devices.

    Attributes:
        low: no slower than this unless something is wrong, or the software is years old.
        likely: what the model gives.
        high: no faster than this with this kind of trainer.
        basis: where it comes from and how far it is usually off.
    """

    low: float
    likely: float
    high: float
    basis: str


# Measured speed over the likely one lies between 0.71 and 1.25 for every published run, given the software of
# its time, and down to 0.60 where that was PyTorch 2.0; a CPU is shared, throttled or hyper-threaded besides.
GPU_SPREAD, CPU_SPREAD = (1.8, 1.6), (2.2, 1.8)
# Where less is known: a family without published speeds, no bandwidth, no power limit where it matters, a
# step that waits for its host, which no published run did, weights divided among devices, several machines.
WIDER, WIDEST = 1.2, 2.4
# High is never more than so many times low.
WIDEST_BAND = 5.8
# A whole step never reaches its peak: the highest published MFU is 0.85; more is called impossible.
MOST_OF_PEAK = 1.0
GPU_BASIS = (
    "a model of a step's parts, fitted to 68 published runs of 16 sources; for 18 runs of 13 other sources it"
    " was off by 12 % in the middle and 42 % at most (those of 2023 allowed for their compiler)"
)
OTHER_FAMILY = "; of this device's family it knows one run or none, so the band is wider"
# Likely and high are those of the highest limit. What people measured on an RTX 3060 Laptop is 0.42 to 1.1
# times as fast, and the clock at its lowest limit is 0.75 of that at the highest.
OF_A_LAPTOP = "; a laptop's maker chooses the power limit, and low is that of the lowest"
CPU_BASIS = (
    "a model of a step's parts, relative to this CPU's peak in float32, fitted to this trainer at eight"
    " shapes on one CPU, within 22 % there"
)
FLOAT32_KERNELS_BASIS = (
    "a model of a step's parts, relative to this CPU's peak in float32, fitted to this trainer with its own"
    " kernels at eight shapes on one CPU, within 22 % there"
)
KERNELS_BASIS = (
    "a model of a step's parts, relative to this CPU's peak in bfloat16, fitted to this trainer with its own"
    " kernels at eight shapes on one CPU, within 18 % there"
)
MATRIX_BASIS = (
    "a model of a step's parts, relative to this CPU's peak in bfloat16, by matrix registers (AMX), fitted to"
    " this trainer with its own kernels at eight shapes on one CPU, within 32 % there"
)
AUTOCAST_BASIS = (
    "a model of a step's parts, relative to this CPU's peak in bfloat16, fitted to this trainer without its"
    " own kernels at five shapes on one CPU, within 20 % there"
)


def predict_speed(work: Work) -> Speed:
    """How many tokens per second a run will train on."""
    parts = step_time(work)
    likely = work.step_tokens / parts.total
    slower, faster = _spread(work, parts)
    high = likely * faster
    if work.device_kind == "cpu":
        return Speed(low=likely / slower, likely=likely, high=high, basis=_cpu_basis(work))
    # Of attention only what a token may look at is computed, which at long contexts is much less.
    possible = MOST_OF_PEAK * work.peak_flops * work.device_count / work.shape.causal_flops_per_token()
    basis = GPU_BASIS if work.kin.known else GPU_BASIS + OTHER_FAMILY
    basis += OF_A_LAPTOP if work.least_clock < 1 else ""
    return Speed(low=likely / slower, likely=likely, high=max(likely, min(high, possible)), basis=basis)


def with_first_compiler(speed: Speed) -> Speed:
    """The speed of a compiled step where PyTorch 2.0 compiles it, as the runs of its time were slower."""
    low, likely, high = (each / FITTED.early_compiler for each in (speed.low, speed.likely, speed.high))
    basis = f"{speed.basis}; PyTorch 2.0's compiler took {FITTED.early_compiler} times as long"
    return Speed(low=low, likely=likely, high=high, basis=basis)


def _cpu_basis(work: Work) -> str:
    if work.kernels and work.dtype == "float32":
        return FLOAT32_KERNELS_BASIS
    if work.kernels:
        return KERNELS_BASIS if work.vector_flops is None else MATRIX_BASIS
    return CPU_BASIS if work.dtype == "float32" else AUTOCAST_BASIS


def _spread(work: Work, parts: StepTime) -> tuple[float, float]:
    """Factors below and above the likely speed."""
    if work.device_kind == "cpu":
        return CPU_SPREAD
    doubts = (
        not work.kin.known,
        work.bandwidth is None,
        work.kin.watts > 0 and work.power_watts is None,
        parts.host > 0.1 * parts.total,
        work.divided or work.device_count > IN_A_MACHINE,
    )
    wider = WIDER ** sum(doubts)
    slower, faster = GPU_SPREAD
    slower, faster = min(slower * wider, WIDEST), min(faster * wider, WIDEST)
    return min(slower / work.least_clock, WIDEST_BAND / faster), faster


def reachable_mfu(work: Work) -> tuple[float, float, float]:
    """The MFU that a run reaches, low, likely and high: `palm` convention, from 0 to 1."""
    speed = predict_speed(work)
    scale = work.shape.flops_per_token() / (work.peak_flops * work.device_count)
    return speed.low * scale, speed.likely * scale, speed.high * scale

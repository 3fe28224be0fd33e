"""What the clock shows: wrong bases, waste, stalls, and devices that cannot have done it."""

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from tests.simulator.devices import ALL, BY_NAME
from tests.simulator.faults.fault import Fault, as_it_is, logged_step, retold
from tests.simulator.run import Run

CARDS = tuple(device.name for device in ALL if device.kind == "consumer" and device.bf16)
UNKNOWN_TO_NANOCHAT = tuple(name for name in CARDS if BY_NAME[name].nanochat_peak == float("inf"))
UNKNOWN_TO_LLMC = tuple(name for name in CARDS if BY_NAME[name].llmc_peak is None)
WITHOUT_BF16 = tuple(device.name for device in ALL if device.tabled and not device.bf16)
LARGE_CARDS = ("RTX 3090", "RTX 4080", "RTX 4090", "RTX 5080", "RTX 5090")


def mfu_basis(rng: np.random.Generator, run: Run) -> Run:
    """A card that the trainer takes for another, or does not know."""
    names = {"nanochat": UNKNOWN_TO_NANOCHAT, "llmc": UNKNOWN_TO_LLMC}.get(run.truth.format, CARDS)
    device = BY_NAME[names[int(rng.integers(len(names)))]]
    return retold(run.with_truth(device=device, device_count=1, dtype="bfloat16"))


def low_mfu(rng: np.random.Generator, run: Run) -> Run:
    """Compilation off, or micro-batches of one or two sequences; the wishes made it slow."""
    run = run.with_truth(compiled=False)
    return retold(run)


def impossible(rng: np.random.Generator, run: Run) -> Run:
    """The stated device cannot have done this."""
    achieved = run.truth.achieved_flops
    weaker = [d.name for d in ALL if d.tabled and 1.4 < achieved / d.peak_flops < 6 and d.bf16]
    assert weaker, run.truth.device.name
    return run.with_facts(device=weaker[int(rng.integers(len(weaker)))])


def slow_evaluations(rng: np.random.Generator, run: Run) -> Run:
    """Lines at evaluations take many times a step."""
    return run.with_truth(eval_seconds=run.truth.step_seconds * float(rng.uniform(4, 60)))


def stalls(rng: np.random.Generator, run: Run) -> Run:
    """A few steps wait for data."""
    truth = run.truth
    factors: dict[int, float] = {}
    while len(factors) < int(rng.integers(2, 5)):
        step = logged_step(rng, run, 0.15, 0.95)
        if not truth.eval_interval or step % truth.eval_interval:
            factors[step] = float(rng.uniform(6, 60))
    return run.with_trouble(stalls=factors)


def slowed(rng: np.random.Generator, run: Run) -> Run:
    """From somewhere in the first two thirds on every step takes longer, at once or little by little."""
    truth = run.truth
    begin, factor = logged_step(rng, run, 0.15, 0.6), float(rng.uniform(1.25, 2.5))
    ramp = 1 if rng.random() < 0.5 else max(1, round(0.15 * truth.last_step))
    steps = range(begin, truth.last_step + 1, truth.log_interval)
    return run.with_trouble(stalls={s: 1 + (factor - 1) * min(1.0, (s - begin + 1) / ramp) for s in steps})


def other_batch(rng: np.random.Generator, run: Run) -> Run:
    """Resumed from a checkpoint with a half, twice or four times the accumulation."""
    truth = run.truth
    at = round(truth.last_step * float(rng.uniform(0.3, 0.7)) / truth.eval_interval) * truth.eval_interval
    at = min(max(at, truth.eval_interval), truth.last_step - truth.eval_interval)
    run = run.with_truth(segments=((0, at), (at, truth.last_step)))
    return run.with_trouble(first_accumulation=int(truth.accumulation * rng.choice([2, 4])))


def emulated(rng: np.random.Generator, run: Run) -> Run:
    """bfloat16 where it is only emulated: seven to nine times slower (measured on V100 and RTX 2080)."""
    efficiency = run.truth.efficiency / float(rng.uniform(7, 9))
    return retold(run.with_truth(dtype="bfloat16", efficiency=efficiency))


ON_CARDS: Mapping[str, object] = MappingProxyType({"kinds": ("consumer", "datacenter"), "variant": ""})
FAULTS: Mapping[str, Fault] = MappingProxyType(
    {
        "mfu-basis": Fault(
            plant=mfu_basis,
            formats=("nanogpt", "llama2c", "nanochat", "llmc", "torchtitan"),
            wishes=MappingProxyType(
                {
                    "devices": ("RTX 4070", "RTX 5070"),
                    "parameters": (2e7, 1.6e8),
                    "variant": "",
                    "days": 20.0,
                    "steps": (300, 60_000),
                }
            ),
        ),
        "near-peak": Fault(
            plant=as_it_is,
            formats=("nanogpt", "llama2c", "nanochat", "llmc", "build-nanogpt", "torchtitan"),
            wishes=MappingProxyType(
                {
                    "devices": LARGE_CARDS,
                    "efficiency": (0.8, 0.92),
                    "parameters": (6e7, 4e8),
                    "variant": "",
                    "days": 20.0,
                }
            ),
        ),
        "low-mfu": Fault(
            plant=low_mfu,
            formats=("nanogpt", "llama2c", "nanochat", "llmc", "build-nanogpt", "torchtitan", "ours"),
            wishes=MappingProxyType(
                {
                    "kinds": ("consumer", "datacenter"),
                    "parameters": (1.15e8, 4e8),
                    "efficiency": (0.08, 0.2),
                    "micro_batch": 2,
                    "tokens_per_step": (8192, 131_072),
                    "tokens_per_parameter": (4.0, 12.0),
                    "steps": (500, 200_000),
                    "days": 60.0,
                    "variant": "",
                }
            ),
            allowed=("long-plan", "undertrained", "small-batch-for-lr", "noisy-eval"),
        ),
        "impossible-throughput": Fault(
            plant=impossible,
            formats=("nanogpt", "llama2c", "build-nanogpt"),
            wishes=MappingProxyType(
                {
                    "devices": ("A100", "H100", "RTX 4090", "RTX 5090"),
                    "parameters": (1e8, 4e8),
                    "count": 1,
                    "days": 20.0,
                    "variant": "",
                }
            ),
            allowed=("device-mismatch", "mfu-basis"),
        ),
        "eval-in-timing": Fault(
            plant=slow_evaluations,
            formats=("nanogpt", "llama2c", "build-nanogpt"),
            wishes=MappingProxyType({"aligned": True, "variant": ""}),
        ),
        "data-stall": Fault(
            plant=stalls,
            formats=(
                "nanogpt",
                "llama2c",
                "build-nanogpt",
                "nanochat",
                "llmc",
                "litgpt",
                "torchtitan",
                "ours",
            ),
            wishes=MappingProxyType({"variant": "", "aligned": True}),
        ),
        "slower-steps": Fault(
            plant=slowed,
            formats=("nanogpt", "llama2c", "build-nanogpt", "nanochat", "llmc", "litgpt", "ours"),
            wishes=MappingProxyType({"variant": "", "aligned": True, "finished": True}),
            allowed=("low-mfu", "data-stall"),
        ),
        "batch-change": Fault(
            plant=other_batch,
            formats=("nanogpt", "llama2c"),
            wishes=MappingProxyType({"variant": "", "finished": True, "evaluations": (8, 20)}),
            allowed=("batch-mismatch", "low-mfu"),
        ),
        "bf16-emulated": Fault(
            plant=emulated,
            formats=("nanogpt", "llama2c", "ours"),
            wishes=MappingProxyType(
                {
                    "devices": WITHOUT_BF16,
                    "parameters": (1e7, 1.3e8),
                    "tokens_per_parameter": (4.0, 15.0),
                    "days": 15.0,
                    "variant": "",
                }
            ),
            allowed=("low-mfu", "long-plan", "undertrained"),
        ),
    }
)

"""A few real steps of a planned run on the device here, on random tokens: what a plan otherwise estimates.

Several cuts of the same step are tried, largest micro-batches that the plan thinks will fit first, compiled
and not where compiling is possible. A step is measured as the median micro-batch times the accumulation plus
one optimizer update, so that a plan of long steps is measured in seconds. Random tokens cost what real ones
do.
"""

import gc
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gptwright import units
from gptwright.arithmetic.memory import training_memory
from gptwright.arithmetic.shape import ModelShape
from gptwright.arithmetic.step import Step
from gptwright.config.schema import TrainConfig
from gptwright.errors import DeviceError
from gptwright.hardware.detect import Device, find_device, use_device
from gptwright.hardware.efficiency import Speed
from gptwright.hardware.heap import keep_freed_memory
from gptwright.hardware.limits import memory_limit
from gptwright.hardware.probe import give_back, synchronize
from gptwright.hardware.torch_build import has_gpu_libraries
from gptwright.model.gpt import GPT
from gptwright.optim.optimizers import build_optimizer
from gptwright.plan.batch import divisors
from gptwright.plan.plan import Plan
from gptwright.train.guards import UpdateGuard
from gptwright.train.memory import is_out_of_memory
from gptwright.train.precision import Precision, allow_tf32, choose_precision, orthogonalizing_dtype
from gptwright.train.products import choose_way
from gptwright.train.state import TrainState
from gptwright.train.update import finish_step
from gptwright.train.world import World

# One micro-batch to warm up (two when compiled: the second may compile again), then the median of what fits.
WARM_UP, LEAST_TIMED, MOST_TIMED = 2, 3, 20
SECONDS_A_TRIAL = 5.0
MOST_CUTS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One cut of the step, as it ran.

    Attributes:
        micro_batch: sequences in a micro-batch.
        accumulation: micro-batches in a step.
        compiled: whether the model was compiled.
        step_seconds: of one optimizer step: fastest tenth, median, slowest tenth; None where it did not run.
        peak_bytes: largest memory in use; on a CUDA device its allocator's, None elsewhere.
        problem: why it did not run.
    """

    micro_batch: int
    accumulation: int
    compiled: bool
    step_seconds: tuple[float, float, float] | None
    peak_bytes: int | None
    problem: str | None

    def document(self) -> dict[str, Any]:
        """The trial as JSON has it."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Measured:
    """What the trials say.

    Attributes:
        trials: all of them, in the order in which they ran.
        config: the plan's config with the fastest cut.
        speed: tokens per second of that cut.
    """

    trials: tuple[Trial, ...]
    config: TrainConfig
    speed: Speed


def measure(plan: Plan) -> Measured:
    """Runs cuts of a plan's step on the device here, a few seconds each, and takes the fastest.

    Raises:
        DeviceError: the device or dtype of the config is not here, or no cut ran.
    """
    config = plan.config
    device = find_device(config.device)
    use_device(device)
    allow_tf32(device)
    precision, compiled, _ = choose_precision(dtype=config.dtype, compile_model=config.compile, device=device)
    shape, chosen = plan.shape, choose_way(config, plan.shape, device, before={})
    if chosen is not None:
        config, precision = chosen.way.applied(config), Precision(device, chosen.way.dtype)
        shape = ModelShape.of(config, shape.vocab_size)
        if shape.keeps_freed_memory:
            keep_freed_memory()
    variants = (True, False) if compiled and config.compile == "auto" else (compiled,)
    trials = tuple(
        _trial(config, shape, precision, cut, variant) for variant in variants for cut in _cuts(plan)
    )
    ran = [trial for trial in trials if trial.step_seconds is not None]
    if not ran:
        raise DeviceError(
            f"no micro-batch of this model ran on {device.name}",
            why="; ".join(f"{trial.micro_batch}: {trial.problem}" for trial in trials),
            fix="a smaller model, block_size or batch_size",
        )
    best = min(ran, key=lambda trial: trial.step_seconds[1] if trial.step_seconds is not None else 0.0)
    assert best.step_seconds is not None
    fast, median, slow = (plan.tokens_per_step / seconds for seconds in best.step_seconds)
    how = "compiled" if best.compiled else "not compiled"
    basis = f"measured just now on {device.name}, {how}, micro-batch {best.micro_batch}"
    config = replace(config, batch_size=best.micro_batch, gradient_accumulation_steps=best.accumulation)
    return Measured(trials, config, Speed(low=slow, likely=median, high=fast, basis=basis))


def _cuts(plan: Plan) -> list[tuple[int, int]]:
    """The plan's own cut of the step, and up to three others that keep its tokens, the largest first."""
    own = (plan.config.batch_size, plan.config.gradient_accumulation_steps)
    sequences, most = plan.config.sequences_per_step, plan.largest_micro_batch or plan.config.batch_size
    fitting = [d for d in divisors(sequences) if d <= most]
    others = [(d, sequences // d) for d in reversed(fitting) if d != own[0]]
    return [own, *others[: MOST_CUTS - 1]]


def _trial(
    config: TrainConfig, shape: ModelShape, precision: Precision, cut: tuple[int, int], compiled: bool
) -> Trial:
    micro_batch, accumulation = cut
    device = precision.device
    if compiled:
        # What was compiled for another cut is neither this one's model nor its shape.
        torch.compiler.reset()
    gc.collect()
    give_back(device)
    seconds, problem = None, _too_large(shape, config, precision, cut, compiled)
    try:
        seconds = None if problem else _step_seconds(config, shape, precision, cut, compiled)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        problem = "out of memory"
    peak = torch.cuda.max_memory_allocated(device.torch_device) if device.type == "cuda" else None
    return Trial(
        micro_batch=micro_batch,
        accumulation=accumulation,
        compiled=compiled,
        step_seconds=seconds,
        peak_bytes=peak,
        problem=problem,
    )


def _too_large(
    shape: ModelShape, config: TrainConfig, precision: Precision, cut: tuple[int, int], compiled: bool
) -> str | None:
    """Why a cut is not tried on a CPU, where the kernel would kill the process; None where it may be."""
    limit = memory_limit() if precision.device.type == "cpu" else None
    step = Step(
        shape=shape,
        micro_batch=cut[0],
        dtype=precision.dtype,
        compiled=compiled,
        accumulation=cut[1],
        device_kind=precision.device.type,
        optimizer=config.optimizer,
        gpu_libraries=precision.device.type == "cpu" and has_gpu_libraries(),
    )
    needed = training_memory(step).total
    if limit is None or needed <= limit.limit_bytes:
        return None
    return f"a step would need about {units.size(needed)}, and {units.size(limit.limit_bytes)} are there"


def _step_seconds(
    config: TrainConfig, shape: ModelShape, precision: Precision, cut: tuple[int, int], compiled: bool
) -> tuple[float, float, float]:
    micro_batch, accumulation = cut
    device = precision.device
    torch.manual_seed(config.seed)
    model = GPT(shape).to(device.torch_device)
    model.train()
    forward = model.compiled() if compiled else model
    optimizer = build_optimizer(
        model, config, fused=device.type != "mps", matmul_dtype=orthogonalizing_dtype(device)
    )
    scaler = precision.scaler()
    tokens, targets = torch.randint(
        shape.vocab_size, (2, micro_batch, shape.block_size), device=device.torch_device
    )
    guard = UpdateGuard(
        spike_z=config.spike_z, scaled=scaler.is_enabled(), device=device.torch_device, state=TrainState()
    )
    losses: list[Tensor] = []

    def micro_step() -> None:
        with precision.autocast():
            loss = forward(tokens, targets) / accumulation
        scaler.scale(loss).backward()
        losses.append(loss.detach())

    def update() -> None:
        finish_step(
            model,
            optimizer,
            scaler,
            guard,
            step=0,
            loss=torch.stack(losses).sum(),
            grad_clip=config.grad_clip,
            world=World(),
        )
        guard.settle()
        losses.clear()

    for _ in range(WARM_UP):
        # Accumulating, gradients lie beside the activations: that is where memory peaks.
        for _ in range(min(2, accumulation)):
            micro_step()
        update()
    micro: list[float] = []
    updates: list[float] = []
    begin = time.perf_counter()
    while len(micro) < LEAST_TIMED or (
        time.perf_counter() - begin < SECONDS_A_TRIAL and len(micro) < MOST_TIMED
    ):
        micro.append(_timed(micro_step, device))
        updates.append(_timed(update, device))
    fast, median, slow = (
        float(accumulation * np.quantile(micro, share) + np.median(updates)) for share in (0.1, 0.5, 0.9)
    )
    return fast, median, slow


def _timed(action: Callable[[], None], device: Device) -> float:
    synchronize(device)
    begin = time.perf_counter()
    action()
    synchronize(device)
    return time.perf_counter() - begin

"""Out of memory: found in the first seconds where it can be, and answered with a smaller micro-batch.

Half the micro-batch and twice the accumulation is the same step: the same sequences, tokens and order, and
losses that are equal up to floating-point order. So a run whose micro-batch does not fit goes on with one
that does, on a card of any size.

On a GPU one step without effect is tried before the first, with gradients, moments and an evaluation, where
memory peaks. On a CPU nothing is tried where the kernel would kill the process rather than refuse: there the
memory model (`arithmetic.memory`) is compared with what the system allows.
"""

import gc
import math
from dataclasses import replace

import torch

from gptwright import units
from gptwright.arithmetic.allocations import allocation_bytes, decode_allocation
from gptwright.arithmetic.cut import Cut
from gptwright.arithmetic.memory import training_memory
from gptwright.arithmetic.shape import ModelShape
from gptwright.arithmetic.step import Step
from gptwright.config.schema import TrainConfig
from gptwright.errors import RunFailedError
from gptwright.hardware.limits import MemoryLimit
from gptwright.hardware.probe import give_back
from gptwright.hardware.torch_build import has_gpu_libraries
from gptwright.train.guards import step_unless
from gptwright.train.session import Session

# What torch's allocator on a CPU says, and Python's own, when the system refuses; and all that cuBLAS says
# when the card has no room for its handle or its workspace.
REFUSALS = (
    "can't allocate memory",
    "not enough memory",
    "Cannot allocate memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
)
# All that oneDNN says when it gets no memory for the code of a kernel, such as GELU's.
ONEDNN_REFUSAL = "could not create a primitive"


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that an allocation failed, on whatever device."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    text = str(error)
    return isinstance(error, RuntimeError) and (
        "out of memory" in text or text == ONEDNN_REFUSAL or any(refusal in text for refusal in REFUSALS)
    )


def shrunk(config: TrainConfig) -> TrainConfig | None:
    """The same step cut finer: at most half the micro-batch; None where it is 1 already.

    The new micro-batch divides the old one, so the sequences of a step and the windows of an evaluation stay
    the same.
    """
    if config.batch_size == 1:
        return None
    pieces = _smallest_factor(config.batch_size)
    micro = config.batch_size // pieces
    return replace(
        config,
        batch_size=micro,
        gradient_accumulation_steps=config.gradient_accumulation_steps * pieces,
        eval_iters=config.eval_iters * pieces,
        eval_batch_size=min(config.eval_batch_size or config.batch_size, micro),
    )


def _smallest_factor(number: int) -> int:
    """The smallest divisor above 1."""
    return next((d for d in range(2, math.isqrt(number) + 1) if number % d == 0), number)


def free_what_is_left(session: Session) -> None:
    """Drops gradients, the allocator's cache and what is compiled for the old shapes after a failed step.

    The most memory in use is counted anew: what a step took that did not fit is not what the run takes.
    """
    session.optimizer.zero_grad(set_to_none=True)
    if session.scaler.is_enabled():
        # A step that failed with unscaled gradients has left that unfinished; a scale that is set ends it.
        session.scaler.scale(torch.zeros((), device=session.precision.device.torch_device))
        session.scaler.update(session.scaler.get_scale())
    if session.compiled:
        torch.compiler.reset()
    gc.collect()
    give_back(session.precision.device)


def explained(error: BaseException, shape: ModelShape, config: TrainConfig, dtype: str) -> str:
    """Which tensor an allocation that failed was, as far as its size tells."""
    size = allocation_bytes(str(error))
    if size is None:
        return "an allocation failed"
    tensors = decode_allocation(size, shape, micro_batch=config.batch_size, dtype=dtype)
    named = f", the size of {tensors[0]} bytes" if tensors else ""
    return f"an allocation of {units.size(size)} failed{named}"


def too_little_memory(said: str, config: TrainConfig, *, several: bool = False) -> RunFailedError:
    """The error of a step that cannot be made any smaller, or may not be."""
    if config.batch_size == 1:
        why = "not even one step fits"
        fix = "a smaller --block_size, --n_embd or --n_layer, --dtype=bfloat16, or a larger device"
    elif several:
        why = "several processes would have to shrink it at the same step, so it is not shrunk"
        fix = f"--batch_size={config.batch_size // 2} with more accumulation"
    else:
        why = "out_of_memory = 'stop' is set"
        fix = f"--batch_size={config.batch_size // 2} with more accumulation, or --out_of_memory=shrink"
    return RunFailedError(
        f"out of memory with a micro-batch of {config.batch_size}: {said}", why=why, fix=fix
    )


def try_step(session: Session, cut: Cut) -> None:
    """Makes a step that changes nothing, with all that a step ever allocates.

    Args:
        session: what trains.
        cut: this process's part of a step; its largest micro-batch is tried.

    Raises:
        RuntimeError: something did not fit.
    """
    place = session.precision.device.torch_device
    # As in a real step two tensors, each whole: a compiled model is made anew for one in the place of both.
    rows = max(micro.rows.stop - micro.rows.start for micro in cut.micro_batches)
    tokens_BT, targets_BT = torch.zeros((2, rows, session.config.block_size), dtype=torch.int64, device=place)
    session.model.train()
    # Accumulating, gradients lie beside the activations: that is where memory peaks.
    for _ in cut.micro_batches[:2]:
        with session.precision.autocast():
            loss = session.forward(tokens_BT, targets_BT)
        session.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
    step_unless(session.optimizer, torch.ones((), dtype=torch.bool, device=place))
    session.optimizer.zero_grad(set_to_none=True)


def predicted_bytes(session: Session, config: TrainConfig) -> int:
    """What the memory model says that this process needs on a CPU."""
    step = Step(
        shape=session.model.shape,
        micro_batch=config.batch_size,
        dtype=session.precision.dtype,
        compiled=session.compiled,
        accumulation=config.gradient_accumulation_steps,
        device_kind="cpu",
        optimizer=config.optimizer,
        gpu_libraries=has_gpu_libraries(),
    )
    return training_memory(step).total


def foreseen(needed: int, limit: MemoryLimit) -> str:
    """Why a micro-batch is not even tried."""
    return (
        f"a step would need about {units.size(needed)}, and {units.size(limit.limit_bytes)} are there"
        f" ({limit.source}), beyond which the system kills the process"
    )

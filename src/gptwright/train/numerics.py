"""Whether a device computes what a CPU does, asked before the first step on an Apple GPU.

torch's kernels for Apple GPUs have given wrong losses without a word, some of them only at certain sizes
(pytorch/pytorch#109457, #107294). So a micro-batch of the run's own size is computed there and on the CPU.
Every row is the same window of random tokens, so that the CPU computes one: each row's loss, and the
gradient of their mean, are that window's.

Cost: one window's forward and backward pass on the CPU, two of a micro-batch on the device, and the weights
and their gradients once more in main memory.
"""

import math

import torch
from torch import Tensor

from gptwright.config.schema import TrainConfig
from gptwright.model.gpt import GPT
from gptwright.train.session import Session
from gptwright.train.tensors import weights_of

# Of a loss, and of a gradient's length, by dtype: far more than rounding, far less than a wrong product.
MOST_APART = {"float32": (1e-3, 1e-2), "float16": (1e-2, 1e-1), "bfloat16": (2e-2, 2e-1)}


def wrong_numbers(session: Session, config: TrainConfig) -> str | None:
    """What a session's device computes otherwise than a CPU; None where nothing is wrong.

    Weights, gradients and draws are left as they were before the first step.

    Args:
        session: with weights that nothing was learnt in yet, or those of a checkpoint.
        config: with the micro-batch that is in use.
    """
    loss_apart, gradient_apart = MOST_APART[session.precision.dtype]
    model, rows = session.model, config.batch_size
    draws = torch.Generator().manual_seed(0)
    window_1T, targets_1T = torch.randint(model.shape.vocab_size, (2, 1, config.block_size), generator=draws)
    wanted, wanted_gradient = _by_the_cpu(model, window_1T, targets_1T)
    place = session.precision.device.torch_device
    batch = [ids_1T.expand(rows, -1).contiguous().to(place) for ids_1T in (window_1T, targets_1T)]
    model.eval()
    try:
        # Apart: older torch keeps weights that it narrowed without gradients for the pass that needs them.
        with session.precision.autocast(), torch.no_grad():
            losses_B = session.forward(*batch, per_window=True).float().cpu()
        with session.precision.autocast():
            loss = session.forward(*batch)
        session.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        gradient = _gradient(model) / session.scaler.get_scale()
    finally:
        model.zero_grad(set_to_none=True)
        model.train()
    found = [*losses_B.tolist(), float(loss.detach())]
    worst = max(found, key=lambda each: abs(each - wanted) if math.isfinite(each) else math.inf)
    where = f"with a micro-batch of {rows} {session.precision.device.name}"
    if not abs(worst - wanted) <= loss_apart * abs(wanted):
        return f"{where} computes a loss of {worst:.4f}, where the CPU computes {wanted:.4f}"
    apart = float((gradient - wanted_gradient).norm() / wanted_gradient.norm())
    if not apart <= gradient_apart:
        return f"{where} computes a gradient that is {apart:.2g} of its own length from the CPU's"
    return None


def _by_the_cpu(model: GPT, window_1T: Tensor, targets_1T: Tensor) -> tuple[float, Tensor]:
    """The loss of a window in float32, and its gradient as one vector."""
    with torch.random.fork_rng(devices=[]):
        reference = GPT(model.shape).eval()
    with torch.no_grad():
        for name, weight in weights_of(model).items():
            reference.get_parameter(name).copy_(weight)
    loss = reference(window_1T, targets_1T)
    loss.backward()
    return float(loss.detach()), _gradient(reference)


def _gradient(model: GPT) -> Tensor:
    gradients = [p.grad.cpu().float().flatten() for p in model.parameters() if p.grad is not None]
    return torch.cat(gradients)

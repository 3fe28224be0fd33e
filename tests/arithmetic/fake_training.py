"""A training step on tensors without data, with torch's own tracker counting what is alive.

`MemTracker` sees every operation's result appear and every storage go, so its peak is what torch itself says
a step needs, at any size and without the memory. The model is ours, and so is the step: forward under
autocast, backward, a fused AdamW, gradients set to None.

A CPU's autocast leaves layer norms in what they are given where a GPU's computes them and the loss in
float32; `GpuAutocast` does as the GPU.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import checkpoint

from gptwright.arithmetic.shape import ModelShape
from gptwright.model.gpt import GPT

IN_FLOAT32 = (F.layer_norm, F.cross_entropy)


class GpuAutocast(TorchFunctionMode):
    """Computes in float32 what a GPU's autocast does."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if func not in IN_FLOAT32 or not torch.is_autocast_enabled("cpu"):
            return func(*args, **(kwargs or {}))
        with torch.autocast("cpu", enabled=False):
            return func(*map(_as_float32, args), **(kwargs or {}))


class PeakTracker(MemTracker):
    """torch's tracker without its table of modules, which takes most of its time and adds nothing here."""

    def _update_peak_stats(self, peak_state: Any) -> None:
        modules, self.memory_tracking = self.memory_tracking, cast("Any", {})
        super()._update_peak_stats(peak_state)
        self.memory_tracking = modules


def tracked_peak(
    shape: ModelShape,
    *,
    micro_batch: int,
    dtype: str,
    accumulation: int = 1,
    checkpointing: bool = False,
    flash: bool = True,
    fused_optimizer: bool = True,
    gpu: bool = True,
) -> int:
    """Bytes of tensors at the peak of a step, after the optimizer has its moments.

    More than two micro-batches are tracked as two: the second already finds the first one's gradients.
    `gpu` False is a step on a real CPU, with its own autocast.
    """
    with FakeTensorMode(), contextlib.ExitStack() as stack:
        model = GPT(shape)
        optimizer = torch.optim.AdamW(
            model.parameters(), fused=fused_optimizer, foreach=None if fused_optimizer else gpu
        )
        _make_moments(model, optimizer)
        if checkpointing:
            _checkpoint_blocks(model)
        tokens_BT = torch.zeros(micro_batch, shape.block_size, dtype=torch.long)
        tracker = PeakTracker()
        tracker.track_external(model, optimizer)
        if not flash:
            stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        if gpu:
            stack.enter_context(GpuAutocast())
        with tracker:
            for _ in range(min(accumulation, 2)):
                tracker.reset_mod_stats()
                with _autocast(dtype):
                    loss = model(tokens_BT, tokens_BT) / accumulation
                loss.backward()
                del loss
            optimizer.step()
    peak = tracker.get_tracker_snapshot("peak")[torch.device("cpu")]
    return cast("int", peak["Total"])


def _as_float32(value: Any) -> Any:
    return value.float() if isinstance(value, Tensor) and value.is_floating_point() else value


def _autocast(dtype: str) -> AbstractContextManager[object]:
    if dtype == "float32":
        return contextlib.nullcontext()
    return torch.autocast("cpu", dtype=getattr(torch, dtype))


def _make_moments(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Lets AdamW make its moments, as the first step of a training does."""
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def _checkpoint_blocks(model: GPT) -> None:
    for block in cast("Iterable[nn.Module]", model.transformer["h"]):
        block.forward = _checkpointed(block.forward)


def _checkpointed(forward: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def run(x_BTC: Tensor, **others: Any) -> Tensor:
        return cast("Tensor", checkpoint(forward, x_BTC, use_reentrant=False, **others))

    return run

"""A training step on tensors without data, with torch's own tracker counting what is alive.

`MemTracker` sees every operation's result appear and every storage go, so its peak is what torch itself says
a step needs, at any size and without the memory. The model is ours, and so is the step: forward under
autocast, backward, a fused AdamW, gradients set to None.

Three things differ on a CPU, and `LikeAGpu` does as the GPU: autocast computes layer norms and the loss in
float32, dropout is torch's and keeps a byte an element, and attention with dropout still runs in a fused
kernel.

Our own kernels fill tensors that torch has made and make none, so here they do nothing.
"""

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, cast
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

from gptwright.arithmetic.shape import ModelShape
from gptwright.model import attention, dropout, gpt
from gptwright.model.fused import loss as fused_loss
from gptwright.model.gpt import GPT

IN_FLOAT32 = (F.layer_norm, F.cross_entropy)


class LikeAGpu(TorchFunctionMode):
    """Runs on a CPU what keeps the same tensors as a GPU's kernels."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in IN_FLOAT32 and torch.is_autocast_enabled("cpu"):
            with torch.autocast("cpu", enabled=False):
                return func(*map(_as_float32, args), **kwargs)
        if func is F.dropout and kwargs["p"]:
            return torch.native_dropout(args[0], kwargs["p"], True)[0]
        if func is F.scaled_dot_product_attention:
            # A GPU's kernel draws its mask again from a seed, so to memory it is as if there were none.
            kwargs = kwargs | {"dropout_p": 0.0}
        return func(*args, **kwargs)


class NoKernels:
    """Leaves tensors as they are."""

    multiplies = True

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype, self.word = dtype, torch.float32.itemsize // dtype.itemsize

    def __call__(self, name: str, *arguments: Tensor | float | None) -> None:
        """Nothing is done."""


class PeakTracker(MemTracker):  # type: ignore[no-untyped-call]
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
    flash: bool = True,
    fused_optimizer: bool = True,
    gpu: bool = True,
) -> int:
    """Bytes of tensors at the peak of a step, after the optimizer has its moments.

    More than two micro-batches are tracked as two: the second already finds the first one's gradients.
    `gpu` False is a step as a CPU makes it; a shape with our own kernels needs no compiler for them.
    """
    kernels = LikeAGpu if gpu else contextlib.nullcontext
    written_out = contextlib.nullcontext() if flash else sdpa_kernel(SDPBackend.MATH)
    with FakeTensorMode(), written_out, contextlib.ExitStack() as patches:
        for module in (attention, dropout) if gpu else ():
            patches.enter_context(patch.object(module, "draws_here", lambda _: False))
        patches.enter_context(patch.object(gpt, "require_kernels", NoKernels))
        # A fake loss has no value.
        patches.enter_context(patch.object(fused_loss, "_is_one", lambda _: False))
        model = GPT(shape)
        optimizer = torch.optim.AdamW(
            model.parameters(), fused=fused_optimizer, foreach=None if fused_optimizer else gpu
        )
        _make_moments(model, optimizer)
        if shape.gradient_checkpointing:
            for block in model.transformer["h"].children():
                block.forward = _within(kernels, block.forward)
        tokens_BT = torch.zeros(micro_batch, shape.block_size, dtype=torch.long)
        tracker = PeakTracker()
        tracker.track_external(model, optimizer)
        with tracker:
            for _ in range(min(accumulation, 2)):
                tracker.reset_mod_stats()
                with kernels(), _autocast(dtype):
                    loss = model(tokens_BT, tokens_BT) / accumulation
                loss.backward()
                del loss
            optimizer.step()
    return tracker.get_tracker_snapshot("peak")[torch.device("cpu")]["Total"]


def _within(
    kernels: Callable[[], AbstractContextManager[object]], forward: Callable[..., Tensor]
) -> Callable[..., Tensor]:
    """A block that is computed again in the backward pass needs its kernels there too."""

    def run(*inputs: Any, **others: Any) -> Tensor:
        with kernels():
            return forward(*inputs, **others)

    return run


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

"""Batches that are ready before they are needed.

While a step computes, one thread reads the next step's windows and, for CUDA, copies them into pinned
memory, from where the device takes them without making the host wait; torch gives that memory to nobody else
before the copy is done. On an Apple GPU the host waits: a copy still under way when its batch is dropped
reads what is no longer there (pytorch/pytorch#189690). A batch is a pure function of its step, so what is
drawn early is what would have been drawn late, and a resumed run needs to know nothing of it.

Cost: one batch more in memory, 16 bytes a token.
"""

import contextlib
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType

import torch
from torch import Tensor

from gptwright.data.sampling import WindowSampler
from gptwright.hardware.detect import Device


class Prefetcher:
    """Gives the batch of a step and begins to read the next; a context manager that ends its thread.

    Args:
        sampler: draws the batches; nobody else may use it meanwhile.
        device: where they go.
        last_step: the first step that will not be asked for.
    """

    def __init__(self, sampler: WindowSampler, device: Device, *, last_step: int) -> None:
        self._sampler = sampler
        self._device = device
        self._last_step = last_step
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="batches")
        self._ready: dict[int, Future[tuple[Tensor, Tensor]]] = {}

    def __enter__(self) -> "Prefetcher":
        # Now and not at the first step: where memory is short, there may be no room for a thread later.
        self._pool.submit(lambda: None).result()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """Tokens and targets of a step, `[sequences_per_step, block_size]`, on the device.

        Raises:
            DataError: an id is outside the vocabulary.
        """
        current = self._ready.pop(step, None) or self._pool.submit(self._read, step)
        self._ready = {}
        if step + 1 < self._last_step:
            self._ready[step + 1] = self._pool.submit(self._read, step + 1)
        tokens_NT, targets_NT = current.result()
        place, pinned = self._device.torch_device, self._device.type == "cuda"
        return tokens_NT.to(place, non_blocking=pinned), targets_NT.to(place, non_blocking=pinned)

    def _read(self, step: int) -> tuple[Tensor, Tensor]:
        tokens, targets = (torch.from_numpy(array) for array in self._sampler.batch(step))
        if self._device.type == "cuda":
            # Where the system pins no more (WSL has little of it), the host waits for the copy.
            with contextlib.suppress(RuntimeError):
                return tokens.pin_memory(), targets.pin_memory()
        return tokens, targets

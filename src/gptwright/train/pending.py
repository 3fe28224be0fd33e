"""The losses of the steps since the last line of the record, and the time that they took.

Losses stay on the device until a line is written, so that a GPU is never made to wait for a number that
nobody reads yet. A step's time is not over when the host has given it to a GPU: that is waited for before a
line, and before an evaluation or a checkpoint, which would wait for it too and be charged with it. A
checkpoint between two lines keeps losses and time, so that a resumed run writes the line that an undisturbed
one would.
"""

import math
import time
from dataclasses import dataclass

import torch
from torch import Tensor

from gptwright.hardware.detect import Device
from gptwright.hardware.probe import synchronize
from gptwright.train.state import TrainState


@dataclass(frozen=True, slots=True)
class LineLosses:
    """What a line of the record says of its steps.

    Attributes:
        last: loss of the last step, nats a token.
        mean: over the steps whose loss is a number; NaN where none is.
        step_seconds: mean time of a step.
    """

    last: float
    mean: float
    step_seconds: float


class PendingLosses:
    """Collects the losses of steps until a line takes them.

    Args:
        device: where the losses are.
        state: of the run; what it kept is gone on from.
    """

    def __init__(self, device: torch.device, state: TrainState) -> None:
        self._device = device
        self.restore(state)

    def restore(self, state: TrainState) -> None:
        """Goes on from a run's state."""
        kept = (math.nan if loss is None else loss for loss in state.pending_losses)
        self._losses = [torch.tensor(loss, device=self._device) for loss in kept]
        self._seconds = state.pending_seconds

    def keep(self, state: TrainState) -> None:
        """Puts what a resumed run needs into its state; makes the host wait for the device."""
        losses = [float(loss) for loss in self._losses]
        state.pending_losses = [loss if math.isfinite(loss) else None for loss in losses]
        state.pending_seconds = self._seconds

    def add(self, loss: Tensor, seconds: float) -> None:
        """Takes in one step: its loss, a scalar on the device, and its time."""
        self._losses.append(loss)
        self._seconds += seconds

    def catch_up(self, device: Device) -> None:
        """Waits until the device has done the steps, which takes their time and not that of what follows."""
        begin = time.perf_counter()
        synchronize(device)
        self._seconds += time.perf_counter() - begin

    def take(self) -> LineLosses:
        """What there is since the last line, of which there must be a step; begins anew."""
        losses = torch.stack(self._losses).tolist()
        numbers = [loss for loss in losses if math.isfinite(loss)]
        mean = sum(numbers) / len(numbers) if numbers else math.nan
        line = LineLosses(losses[-1], mean, self._seconds / len(losses))
        self._losses, self._seconds = [], 0.0
        return line

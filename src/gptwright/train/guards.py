"""What keeps one bad number from ruining a run: every update is judged before it touches the weights.

A NaN or infinite loss or gradient, or a gradient far outside the recent ones, is judged on the device. The
verdict goes into the optimizer as a tensor (`found_inf`, which torch's fused kernels take and which makes
them leave weights, moments and step counts alone), so a GPU is never made to wait for the host; what was
refused is read where the host reads losses anyway. Cost: some ten kernels of a few numbers a step.

What follows is a pure function of the settings and of the run's state, so a resumed run decides the same:
skip within a budget, else go back to the last good checkpoint and pass over that stretch of the data, from
the second time on with half the learning rate, else stop. PaLM (Chowdhery et al. 2022, 5.1) was rolled back
and moved past some hundred batches in the same way at about 20 spikes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal

import torch
from torch import Tensor

from gptwright.config.schema import TrainConfig
from gptwright.optim.optimizers import Optimizer
from gptwright.train.state import TrainState

# Updates whose gradient norms a spike is measured against; their standard deviation is then known to 6 %.
NORM_WINDOW = 128
# The least standard deviation of a norm's logarithm: below a tenth, a harmless rise would count as a spike.
LEAST_DEVIATION = 0.1
# The budget of skipped updates is counted within this many steps.
BUDGET_STEPS = 1000
# Refused updates no further apart than this are one trouble: PaLM went back about as many steps.
TROUBLE_GAP = 100
# The learning rate's factor from the second rollback on, as people halve it by hand.
RATE_FACTOR = 0.5
# A gradient scaler starts at 65,536 and halves with each overflow. Below 1 it makes gradients smaller, which
# float16 never needs: it is the loss that overflows.
LEAST_SCALE = 1.0

Action = Literal["skip", "rollback", "stop"]


class Verdict(IntEnum):
    """Why an update was refused."""

    FINE = 0
    LOSS = 1
    GRADIENT = 2
    SPIKE = 3
    # A float16 gradient overflowed and the scaler will halve its scale: the ordinary search for it.
    SCALED = 4


@dataclass(frozen=True, slots=True)
class Refused:
    """An update that was not made."""

    step: int
    verdict: Verdict
    loss: float
    grad_norm: float

    @property
    def reason(self) -> str:
        """Why, in words."""
        if self.verdict is Verdict.LOSS:
            return f"the loss is {self.loss}"
        if self.verdict is Verdict.GRADIENT:
            return f"the gradient norm is {self.grad_norm}"
        return f"the gradient norm {self.grad_norm:.4g} is far above the recent ones"


class UpdateGuard:
    """Judges updates on the device and remembers the verdicts until the host asks.

    Args:
        spike_z: standard deviations above the recent mean that make a spike; 0: none does.
        scaled: whether a float16 scaler is at work.
        device: where the numbers are.
        state: of the run; its recent norms are gone on from.
    """

    def __init__(self, *, spike_z: float, scaled: bool, device: torch.device, state: TrainState) -> None:
        self._spike_z = spike_z
        self._scaled = scaled
        self._device = device
        self._waiting: list[tuple[int, Tensor]] = []
        self.restore(state)

    def restore(self, state: TrainState) -> None:
        """Goes on from a run's state."""
        self._waiting = []
        self._norms = torch.zeros(NORM_WINDOW, device=self._device)
        self._seen = state.norms_seen
        if state.recent_norms:
            self._norms.copy_(torch.tensor(state.recent_norms))

    def keep(self, state: TrainState) -> None:
        """Puts what a resumed run needs into its state."""
        if self._spike_z:
            state.recent_norms, state.norms_seen = self._norms.tolist(), self._seen

    def judge(self, step: int, loss: Tensor, grad_norm: Tensor) -> Tensor:
        """Whether to refuse an update, as a bool on the device.

        Args:
            step: of the update.
            loss: its mean loss; over all processes, so that they agree.
            grad_norm: before clipping, unscaled.
        """
        bad_gradient = Verdict.SCALED if self._scaled else Verdict.GRADIENT
        verdict = torch.where(grad_norm.isfinite(), 0, int(bad_gradient))
        if self._spike_z:
            verdict = torch.where(self._is_spike(grad_norm), int(Verdict.SPIKE), verdict)
        verdict = torch.where(loss.isfinite(), verdict, int(Verdict.LOSS))
        self._waiting.append((step, torch.stack((loss.float(), grad_norm.float(), verdict.float()))))
        return verdict != 0

    def _is_spike(self, grad_norm: Tensor) -> Tensor:
        """Compares a norm with the window, in logarithms; it then joins it, so a lasting rise is no spike."""
        log_norm = grad_norm.log().float()
        spike = torch.zeros((), dtype=torch.bool, device=self._device)
        if self._seen >= NORM_WINDOW:
            deviation = self._norms.std().clamp_min(LEAST_DEVIATION)
            spike = (log_norm - self._norms.mean()) > self._spike_z * deviation
        place = self._seen % NORM_WINDOW
        self._norms[place] = torch.where(log_norm.isfinite(), log_norm, self._norms[place])
        self._seen += 1
        return spike & grad_norm.isfinite()

    def settle(self) -> list[Refused]:
        """The updates that were refused since it was last asked; makes the host wait for the device."""
        if not self._waiting:
            return []
        steps = [step for step, _ in self._waiting]
        rows = torch.stack([row for _, row in self._waiting]).tolist()
        self._waiting = []
        return [
            Refused(step, Verdict(int(verdict)), loss, norm)
            for step, (loss, norm, verdict) in zip(steps, rows, strict=True)
            if int(verdict) not in (Verdict.FINE, Verdict.SCALED)
        ]


def step_unless(optimizer: Optimizer, refused: Tensor) -> None:
    """Makes the optimizer's step unless `refused`, a bool on the device, is true.

    What is fused takes the verdict as a tensor, on a GPU Muon too; elsewhere the host looks once a step.
    """
    if optimizer.takes_found_inf:
        optimizer.step(found_inf=refused.float())
    elif not bool(refused):
        optimizer.step()


def trouble_began(skipped: Sequence[int]) -> int | None:
    """The first refused update of the trouble that the last one belongs to; None without any."""
    first = None
    for step in reversed(skipped):
        if first is not None and first - step > TROUBLE_GAP:
            break
        first = step
    return first


def decide(config: TrainConfig, state: TrainState, refused: Refused) -> Action:
    """What to do about a refused update; counts it in the state."""
    state.skipped = [step for step in state.skipped if step > refused.step - BUDGET_STEPS] + [refused.step]
    wanted: Action = "skip" if refused.verdict is Verdict.SPIKE else config.nonfinite
    if wanted == "skip" and len(state.skipped) > config.skip_budget:
        wanted = "rollback"
    if wanted == "rollback" and state.rollbacks >= config.rollback_budget:
        wanted = "stop"
    return wanted

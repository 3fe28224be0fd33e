"""The loss of a split on a fixed set of windows, in eval mode.

nanoGPT draws new random batches for every evaluation, so two of its numbers differ without any training in
between. Here the windows of a run never change, and each window's loss is kept, so that every printed loss
has a standard error and two evaluations can be compared window by window. Several processes deal the batches
out among them, the same batches as one process has, and every one gets every window's loss.
"""

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gptwright.arithmetic.noise import MeanLoss, mean_loss
from gptwright.data.sampling import WindowReader, evaluation_starts
from gptwright.files import replace_bytes
from gptwright.train.session import Session


class Evaluator:
    """Evaluates both splits of a session's dataset on windows that are drawn once."""

    def __init__(self, session: Session) -> None:
        self.session = session
        config = session.config
        self.batch_size = config.eval_batch_size or config.batch_size
        self.starts = {
            name: evaluation_starts(
                split,
                block_size=config.block_size,
                windows=config.eval_iters * config.batch_size,
                seed=config.seed,
            )
            for name, split in session.dataset.splits.items()
        }
        self.readers = {
            name: WindowReader(split, config.block_size, session.id_limit)
            for name, split in session.dataset.splits.items()
        }

    def shrink(self) -> bool:
        """Halves the sequences of a forward pass; False where it has only one."""
        if self.batch_size == 1:
            return False
        self.batch_size //= 2
        return True

    def try_batch(self) -> None:
        """Evaluates one batch for nothing but the memory that it takes."""
        self.session.model.eval()
        try:
            self._losses_of("train", self.starts["train"][: self.batch_size])
        finally:
            self.session.model.train()

    def evaluate(self, stop: Callable[[], bool]) -> dict[str, npt.NDArray[np.float32]] | None:
        """Per-window losses `[windows]` in nats a token, by split; None where `stop` said so before the end.

        It is asked between batches, because on a small machine an evaluation takes minutes, which neither
        a person who presses Ctrl-C nor a machine that shuts down waits for.
        """
        model = self.session.model
        model.eval()
        try:
            found = {}
            for name in ("train", "val"):
                losses_W = self._window_losses(name, stop)
                if losses_W is None:
                    return None
                found[name] = losses_W
            return found
        finally:
            model.train()

    def _window_losses(self, name: str, stop: Callable[[], bool]) -> npt.NDArray[np.float32] | None:
        world, starts = self.session.world, self.starts[name]
        begins = range(0, len(starts), self.batch_size)
        losses_W = torch.zeros(len(starts), device=self.session.precision.device.torch_device)
        for turn in range(0, len(begins), world.size):
            if turn and stop():
                return None
            # Sharded weights are gathered in every forward pass, so a process without a batch of its own
            # makes the last one again.
            number = turn + world.rank
            begin = begins[min(number, len(begins) - 1)]
            losses_B = self._losses_of(name, starts[begin : begin + self.batch_size])
            if number < len(begins):
                losses_W[begin : begin + len(losses_B)] = losses_B
        result: npt.NDArray[np.float32] = world.sum(losses_W).cpu().numpy()
        return result

    def _losses_of(self, name: str, starts: npt.NDArray[np.int64]) -> Tensor:
        session, device = self.session, self.session.precision.device.torch_device
        # A last batch of another size would have the model compiled once more.
        whole = np.resize(starts, self.batch_size) if session.compiled else starts
        tokens_BT, targets_BT = self.readers[name].read(whole)
        with torch.no_grad(), session.precision.autocast():
            losses_B = session.forward(
                torch.from_numpy(tokens_BT).to(device),
                torch.from_numpy(targets_BT).to(device),
                per_window=True,
            )
        return losses_B[: len(starts)].float()


def summarized(losses: dict[str, npt.NDArray[np.float32]]) -> dict[str, MeanLoss]:
    """Mean and standard error of each split."""
    return {name: mean_loss(values) for name, values in losses.items()}


def save_window_losses(folder: Path, step: int, losses: dict[str, npt.NDArray[np.float32]]) -> None:
    """Keeps the validation windows' losses of one evaluation as a .npy file."""
    buffer = io.BytesIO()
    np.save(buffer, losses["val"], allow_pickle=False)
    replace_bytes(folder / f"val-{step:08d}.npy", buffer.getvalue())

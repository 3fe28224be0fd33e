"""How sure a mean loss is.

An evaluation averages the losses of windows drawn from a split. Its standard error is the windows' standard
deviation over the root of their number, which is how far the printed mean may be from what all text of this
kind would give. Windows that share a document are alike, so on small splits the true error is larger.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class MeanLoss:
    """A mean over windows, in nats a token.

    Attributes:
        mean: the mean loss.
        standard_error: one standard error; None where one window alone was seen.
        windows: how many windows.
    """

    mean: float
    standard_error: float | None
    windows: int


def mean_loss(window_losses: npt.NDArray[np.floating]) -> MeanLoss:
    """The mean of per-window losses `[windows]` with its standard error."""
    losses = window_losses.astype(np.float64)
    windows = len(losses)
    standard_error = float(losses.std(ddof=1) / np.sqrt(windows)) if windows > 1 else None
    return MeanLoss(float(losses.mean()), standard_error, windows)

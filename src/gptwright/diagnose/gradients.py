"""Whether gradients grew before a loss broke."""

import numpy as np

from gptwright.diagnose.reading import Reading
from gptwright.facts import Fact, logged


def norm_growth(reading: Reading, step: int) -> tuple[str, list[Fact]] | None:
    """How the gradient norm grew before a step, in words and as evidence; None where it did not threefold.

    What is usual is its median from three to nine tenths of the way there.
    """
    train = reading.train
    if train is None or not np.isfinite(train.grad_norm).any():
        return None
    finite = np.isfinite(train.grad_norm)
    before = finite & (train.step < 0.9 * step) & (train.step > 0.3 * step)
    near = finite & (train.step >= 0.9 * step)
    if before.sum() < 3 or not near.any():
        return None
    usual = float(np.median(train.grad_norm[before]))
    row = int(np.flatnonzero(near)[np.argmax(train.grad_norm[near])])
    largest = float(train.grad_norm[row])
    if largest < 3 * usual:
        return None
    text = f" The gradient norm grew from {usual:.2g} to {largest:.2g}."
    return text, [logged("grad_norm", largest, int(train.line[row]))]

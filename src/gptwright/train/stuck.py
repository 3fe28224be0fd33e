"""Whether a run has learned anything by the time it should have: the loss against that of token frequencies.

A model that learns no context at all can still learn how often each token occurs, and its loss then stays at
the entropy of those frequencies (7.3 to 7.8 nats for GPT-2's vocabulary). Some hundred steps after the
warm-up every working set-up is below it. The entropy is measured on the training data itself.
"""

import math
from collections import deque

import numpy as np

from gptwright.config.schema import TrainConfig
from gptwright.data.splits import TokenSplit

# A million tokens give the entropy of 50,000 frequencies within some hundredths of a nat.
SAMPLE_TOKENS = 1_000_000
# Lines of the record whose mean is compared: a single step's loss varies by a tenth of a nat.
LINES = 50


def frequency_entropy(split: TokenSplit) -> float:
    """The entropy in nats of single tokens, over up to a million from the beginnings of all shards."""
    each = max(1, SAMPLE_TOKENS // len(split.shards))
    counts = np.zeros(split.vocab_size, dtype=np.int64)
    for shard in split.shards:
        counts += np.bincount(shard.ids[:each], minlength=split.vocab_size)
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * np.log(shares)).sum())


class StuckLoss:
    """Looks once, `stuck_steps` after the warm-up, whether the loss is below the entropy of frequencies."""

    def __init__(self, config: TrainConfig, split: TokenSplit) -> None:
        self._at = (config.warmup_iters if config.decay_lr else 0) + config.stuck_steps
        self._interval = config.log_interval
        self._asked = bool(config.stuck_steps)
        self._split = split
        self._losses: deque[float] = deque(maxlen=LINES)

    def check(self, step: int, loss_mean: float) -> str | None:
        """Takes in one line of the record; says what is wrong at the line where it looks."""
        if not self._asked or step > self._at + self._interval:
            return None
        if math.isfinite(loss_mean):
            self._losses.append(loss_mean)
        if not step - self._interval < self._at <= step or not self._losses:
            return None
        entropy, mean = frequency_entropy(self._split), sum(self._losses) / len(self._losses)
        if mean < entropy:
            return None
        return (
            f"the loss is stuck: its mean of the last {len(self._losses)} lines is {mean:.3f}, no lower than"
            f" {entropy:.3f}, the entropy of token frequencies alone, so no context has been learned; try"
            " another learning rate, or see whether one batch can be overfitted"
        )

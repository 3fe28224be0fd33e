"""The learning rate of a step, as a pure function of the settings and the step.

Nothing is stored between steps, so a resumed run cannot drift from its schedule. Warm-up and cosine are
nanoGPT's to the digit; the linear and the warm-up-stable-decay shapes share its warm-up and end.
"""

import math

from gptwright.config.schema import TrainConfig


def learning_rate(config: TrainConfig, step: int) -> float:
    """The learning rate that update `step` (counted from 0) uses."""
    if not config.decay_lr:
        return config.learning_rate
    if step < config.warmup_iters:
        return config.learning_rate * (step + 1) / (config.warmup_iters + 1)
    if step > config.lr_decay_iters:
        return config.min_lr
    return config.min_lr + _remaining(config, step) * (config.learning_rate - config.min_lr)


def _remaining(config: TrainConfig, step: int) -> float:
    """How much of the way from `min_lr` up to `learning_rate` is left, from 1 to 0."""
    begin = config.warmup_iters
    if config.lr_schedule == "wsd":
        begin = max(begin, round(config.lr_decay_iters * (1 - config.cooldown_fraction)))
    if step <= begin:
        return 1.0
    progress = (step - begin) / (config.lr_decay_iters - begin)
    return 0.5 * (1.0 + math.cos(math.pi * progress)) if config.lr_schedule == "cosine" else 1.0 - progress


# Early the mean gradient still turns quickly (modded-nanogpt, 2024-11-06: 0.0128 nats at 124M).
FIRST_MOMENTUM = 0.85


def muon_momentum(config: TrainConfig, step: int) -> float:
    """Muon's momentum at update `step` (counted from 0): it rises linearly over `muon_warmup_iters`."""
    risen = min(1.0, step / config.muon_warmup_iters) if config.muon_warmup_iters else 1.0
    return FIRST_MOMENTUM + risen * (config.muon_momentum - FIRST_MOMENTUM)

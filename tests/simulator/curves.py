"""The loss of a simulated run without noise, at any step.

A run starts at ln(vocabulary) plus half the variance of its first logits, falls along a power law in tokens
towards what its size allows, and gains a little when the learning rate decays. During warm-up a step counts
by its share of the full learning rate. With web text and GPT-2's tokenizer the law is Besiroglu et al.'s fit
(arXiv 2404.10102) plus 0.145 nats, plus 0.12 while the learning rate is at its peak. That is within 0.1 nats
of llm.c's public curves of 124M and 350M from one billion tokens to their ends at 10.3 and 31.5 billion.
"""

import numpy as np

from tests.simulator.truth import Floats, Law, Rise, Truth

# llm.c's 124M and 350M runs end 0.12 nats above the law at 83 and 89 tokens per parameter; a public 40M run
# is no further above it at 258.
LATE_FROM, LATE_UNTIL = 25.0, 1.2
# Each pass over the same data widens the gap between the splits a little before it shows as overfitting.
GAP_PER_EPOCH = 0.008


def law_loss(law: Law, parameters: float, tokens: Floats) -> Floats:
    """The law alone."""
    late = law.late * np.clip(np.log(tokens / parameters / LATE_FROM), 0.0, LATE_UNTIL)
    loss: Floats = law.capacity(parameters) + law.b / tokens**law.beta + late
    return loss


def train_loss(truth: Truth, steps: Floats) -> Floats:
    """Eval-mode loss on training data."""
    overfit = truth.trouble.overfit
    if overfit is None:
        return _troubled(truth, steps, _healthy(truth, steps))
    reached = _healthy(truth, np.minimum(steps, overfit.best_step))
    end = float(_healthy(truth, np.array([float(min(truth.last_step, overfit.best_step))]))[0])
    memorized = (end - overfit.train_end) * (steps / max(1, truth.last_step)) ** 1.3
    return _troubled(truth, steps, reached - memorized)


def validation_loss(truth: Truth, steps: Floats) -> Floats:
    """Loss on the validation split."""
    trouble = truth.trouble
    settled = 1.0 - np.exp(-((steps / max(1.0, truth.transient_steps)) ** 2))
    if trouble.overfit is None:
        epochs = steps * truth.tokens_per_step / truth.train_tokens
        loss = train_loss(truth, steps) + GAP_PER_EPOCH * truth.law.scale * epochs
    else:
        best = trouble.overfit.best_step
        after = np.maximum(0.0, steps - best) / max(1, truth.last_step - best)
        loss = _troubled(truth, steps, _healthy(truth, np.minimum(steps, best)))
        loss = loss + trouble.overfit.rise * after**1.2
    loss = loss + truth.split_offset * settled
    if trouble.ripple_period:
        loss = loss + trouble.ripple_height * np.sin(2 * np.pi * steps / trouble.ripple_period) * settled
    if trouble.val_level is not None:
        loss = np.where(steps > 0, truth.uniform_loss + trouble.val_level * (1 + 0.3 * settled), loss)
    return loss


def _healthy(truth: Truth, steps: Floats) -> Floats:
    law = truth.law
    capacity = law.capacity(truth.shape.counted)
    # The law begins where it meets the first loss: as if this many tokens had been seen before.
    before = (law.b / max(0.05, truth.initial_loss - capacity)) ** (1 / law.beta)
    tokens: Floats = _full_steps(truth, steps) * truth.tokens_per_step + before
    return law_loss(law, truth.shape.counted, tokens) + _undecayed(truth, steps)


def _full_steps(truth: Truth, steps: Floats) -> Floats:
    """Steps, those of the warm-up counted by their share of the full learning rate."""
    warmup = max(1.0, float(truth.schedule.warmup))
    return np.where(steps < warmup, steps**2 / (2 * warmup), steps - warmup / 2)


def _undecayed(truth: Truth, steps: Floats) -> Floats:
    """What the decay of the learning rate is still to bring."""
    rate = truth.schedule.at(steps) / truth.schedule.peak
    ramp = np.clip(steps / (3 * truth.transient_steps), 0.0, 1.0)
    return truth.law.recipe_bonus * truth.law.scale * rate * ramp


def _troubled(truth: Truth, steps: Floats, loss: Floats) -> Floats:
    trouble = truth.trouble
    if trouble.initial_shift > 0:
        loss = loss + trouble.initial_shift * np.exp(-steps / max(1.0, 0.3 * truth.transient_steps))
    elif trouble.initial_shift < 0:
        # Weights that know something already: flat until the run would have got there by itself.
        loss = np.minimum(loss, truth.initial_loss + trouble.initial_shift)
    if trouble.stuck_level is not None:
        falling = (truth.initial_loss - trouble.stuck_level) * np.exp(-steps / (0.5 * truth.transient_steps))
        loss = trouble.stuck_level + falling - 0.02 * steps / truth.last_step
    for spike in trouble.spikes:
        loss = loss + _spike(spike, steps)
    if trouble.divergence is not None:
        rise = trouble.divergence
        since = np.maximum(0.0, steps - rise.step) / rise.half_steps
        loss = loss + rise.height * (1.0 - 0.5**since)
    if len(truth.segments) > 1 and trouble.resume_bump:
        start = truth.segments[1][0]
        since = (steps - start) / max(1.0, 0.1 * (truth.last_step - start))
        bump = trouble.resume_bump * np.minimum(1.0, since * 8) * np.exp(-since / 3)
        loss = loss + np.where(since > 0, bump, 0.0)
    return loss


def _spike(spike: Rise, steps: Floats) -> Floats:
    since = (steps - spike.step) / spike.half_steps
    rising = np.clip(since * 4, 0.0, 1.0)
    return np.where(since >= 0, spike.height * rising * 0.5 ** np.maximum(0.0, since - 0.25), 0.0)

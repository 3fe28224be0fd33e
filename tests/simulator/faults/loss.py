"""What the training loss shows: no number, no way back, no start, no progress, or a multiple of the truth."""

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from tests.simulator.curves import train_loss
from tests.simulator.faults.fault import STEP_LOSS, Fault, logged_step, retold
from tests.simulator.run import Run
from tests.simulator.truth import Rise


def non_finite(rng: np.random.Generator, run: Run) -> Run:
    """From one step on the loss is no number."""
    word = "inf" if rng.random() < 0.15 else "nan"
    return run.with_trouble(bad_from=logged_step(rng, run, 0.25, 0.9), bad_word=word)


def divergence(rng: np.random.Generator, run: Run) -> Run:
    """The loss climbs by one to three nats and stays there."""
    rise = Rise(
        step=logged_step(rng, run, 0.3, 0.7),
        height=float(rng.uniform(0.9, 3.0)) * run.truth.law.scale,
        half_steps=run.truth.last_step * float(rng.uniform(0.01, 0.04)),
    )
    return run.with_trouble(divergence=rise)


def spike(rng: np.random.Generator, run: Run) -> Run:
    """The loss jumps, and is back after a few per cent of the run."""
    truth = run.truth
    line_noise = truth.noise * float(np.sqrt(1024 / (truth.micro_batch * truth.shape.block_size)))
    rise = Rise(
        step=logged_step(rng, run, 0.35, 0.8),
        height=max(float(rng.uniform(1.0, 2.5)) * truth.law.scale, 12 * line_noise),
        half_steps=truth.log_interval * float(rng.uniform(2.0, 4.0)),
    )
    return run.with_trouble(spikes=(rise,))


def stuck(rng: np.random.Generator, run: Run) -> Run:
    """The loss stops at the level of token frequencies alone (nanoGPT#303: 7.8)."""
    return run.with_trouble(stuck_level=float(rng.uniform(7.5, 7.85)))


def wrong_start(rng: np.random.Generator, run: Run) -> Run:
    """The first loss is far from ln(vocabulary)."""
    truth = run.truth
    above = rng.random() < 0.6
    shift = float(rng.uniform(0.15, 0.6)) * truth.uniform_loss
    end = float(train_loss(truth, np.array([float(truth.last_step)]))[0])
    below = -float(rng.uniform(0.4, 0.8)) * (truth.initial_loss - end)
    return run.with_trouble(initial_shift=shift if above else below)


def scaled(rng: np.random.Generator, run: Run) -> Run:
    """The trainer prints the sum over micro-batches (transformers#35204)."""
    return run.with_trouble(loss_scale=float(run.truth.accumulation))


def rate_jump(rng: np.random.Generator, run: Run) -> Run:
    """A finished run is resumed with a longer schedule: the learning rate jumps back up."""
    truth = run.truth
    grid = truth.eval_interval
    resumed = max(grid, round(truth.last_step * float(rng.uniform(0.3, 0.6)) / grid) * grid)
    first = dataclasses.replace(
        truth.schedule, decay_steps=resumed, floor=min(truth.schedule.floor, 0.1 * truth.schedule.peak)
    )
    run = run.with_truth(schedule=first, segments=((0, resumed), (resumed, truth.last_step)))
    second = dataclasses.replace(
        truth.schedule, shape="cosine" if truth.schedule.shape != "trapezoid" else "trapezoid"
    )
    bump = float(rng.uniform(0.06, 0.15)) * truth.law.scale
    return retold(run.with_trouble(second_schedule=second, resume_bump=bump))


FULL_VOCABULARY: Mapping[str, object] = MappingProxyType(
    {"vocabulary": 50304, "parameters": (1e8, 4e8), "variant": "", "days": 20.0}
)
PLAIN: Mapping[str, object] = MappingProxyType({"variant": ""})
AFTER_LOSS = (
    "worse-than-uniform",
    "loss-spike",
    "divergence",
    "above-reference",
    "stuck-loss",
    "still-improving",
)
FAULTS: Mapping[str, Fault] = MappingProxyType(
    {
        "non-finite-loss": Fault(
            plant=non_finite, formats=(*STEP_LOSS, "modded-current"), wishes=PLAIN, allowed=AFTER_LOSS
        ),
        "divergence": Fault(
            plant=divergence,
            formats=STEP_LOSS,
            wishes=PLAIN,
            allowed=(*AFTER_LOSS, "overfitting", "plateau-unproven", "undertrained"),
        ),
        "loss-spike": Fault(
            plant=spike, formats=STEP_LOSS, wishes=PLAIN, allowed=("data-stall", "overfitting")
        ),
        "stuck-loss": Fault(
            plant=stuck,
            formats=("nanogpt", "build-nanogpt", "llmc", "litgpt", "hf", "hf-state", "torchtitan", "ours"),
            wishes=FULL_VOCABULARY,
            allowed=("above-reference", "plateau-unproven", "capacity-limited", "undertrained"),
        ),
        "init-loss": Fault(
            plant=wrong_start,
            formats=("nanogpt", "llama2c", "build-nanogpt", "llmc", "torchtitan", "ours", "nanochat"),
            wishes=PLAIN,
            allowed=("worse-than-uniform",),
        ),
        "scaled-loss": Fault(
            plant=scaled,
            formats=("hf", "hf-state"),
            wishes=MappingProxyType({"micro_batch": 4, "kinds": ("consumer", "datacenter")}),
            allowed=("init-loss", "worse-than-uniform", "above-reference"),
        ),
        "lr-jump": Fault(
            plant=rate_jump,
            formats=("llama2c", "llmc", "ours", "nanochat", "hf"),
            wishes=MappingProxyType({"variant": "", "finished": True, "steps": (1000, 40_000)}),
            allowed=("loss-spike", "schedule-mismatch", "divergence", "config-mismatch"),
        ),
    }
)

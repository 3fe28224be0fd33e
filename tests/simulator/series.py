"""From a truth to the numbers that a trainer prints: which steps, with what noise, timed how.

The noise of a printed loss is that of the tokens behind it: 0.40 nats for 1,024 tokens of web text drawn at
random (0.156, 0.094 and 0.068 on lines of 8, 16 and 32 sequences in public logs), 1.0 where a trainer reads
its shards in order (0.043 a step of 512 sequences in llm.c's log).
"""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from tests.simulator.curves import train_loss, validation_loss
from tests.simulator.truth import Floats, Truth

# Spread of step times on an undisturbed machine, and the slow drift of a warming one: public logs.
TIME_SPREAD = 0.004
TIME_DRIFT = 0.006
# A float16 step whose update the scaler skips is a little faster (nanoGPT#215: 7 %).
SKIPPED_UPDATE_SPEED = 0.94
# Evaluations that read the same tokens differ from each other by far less than from all text.
FIXED_EVAL_SHARE = 0.08
SMOOTHING = 0.9
UNTRAINED_SCATTER = 0.1


class Behind(StrEnum):
    """Which tokens a printed training loss is the mean of."""

    MICRO_BATCH = "the last micro-batch"
    STEP = "the step"
    INTERVAL = "the steps since the line before"
    SMOOTHED = "a running average of the last micro-batches"


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """The printed numbers of one process, in order; lists, because they are formatted one by one.

    Attributes:
        first: its first step.
        last: its last step.
        step: training lines.
        loss: as printed, without the trainer's rounding.
        loss_mean: the mean over the steps since the line before.
        seconds: one optimizer step, as printed.
        rate: learning rate.
        grad_norm: before clipping.
        eval_step: evaluations.
        eval_train: eval-mode loss on training data.
        eval_val: validation loss.
    """

    first: int
    last: int
    step: list[int]
    loss: list[float]
    loss_mean: list[float]
    seconds: list[float]
    rate: list[float]
    grad_norm: list[float]
    eval_step: list[int]
    eval_train: list[float]
    eval_val: list[float]


def columns(
    truth: Truth,
    rng: np.random.Generator,
    *,
    behind: Behind,
    time_includes_evaluation: bool = False,
    evaluate_last: bool = False,
    print_last: bool = False,
    means: bool = False,
) -> list[Columns]:
    """The printed numbers of each process.

    Args:
        truth: the run.
        rng: where its noise comes from.
        behind: what a printed training loss is.
        time_includes_evaluation: an evaluation's time is in the line of its step.
        evaluate_last: the last step is evaluated though its turn has not come.
        means: draw `loss_mean` too; else it is `loss`.
        print_last: the last step has a line though its turn has not come.
    """
    fixed = rng.normal(0.0, truth.eval_error, 2) if truth.eval_fixed else np.zeros(2)
    return [
        _process(
            truth,
            rng,
            index=index,
            behind=behind,
            steps=_line_steps(truth, index, print_last),
            eval_steps=_eval_steps(truth, index, evaluate_last),
            fixed=fixed,
            stretched=time_includes_evaluation,
            means=means,
        )
        for index in range(len(truth.segments))
    ]


def _line_steps(truth: Truth, index: int, print_last: bool) -> Floats:
    first, last = truth.segments[index]
    begin = -(-first // truth.log_interval) * truth.log_interval
    steps = np.arange(begin, last + 1, truth.log_interval, dtype=np.float64)
    return np.append(steps, last) if print_last and last % truth.log_interval else steps


def _eval_steps(truth: Truth, index: int, evaluate_last: bool) -> Floats:
    if not truth.eval_interval:
        return np.zeros(0)
    first, last = truth.segments[index]
    begin = -(-first // truth.eval_interval) * truth.eval_interval
    steps = np.arange(begin, last + 1, truth.eval_interval, dtype=np.float64)
    if evaluate_last and index == len(truth.segments) - 1 and last % truth.eval_interval:
        steps = np.append(steps, last)
    return steps


def _process(
    truth: Truth,
    rng: np.random.Generator,
    *,
    index: int,
    behind: Behind,
    steps: Floats,
    eval_steps: Floats,
    fixed: Floats,
    stretched: bool,
    means: bool,
) -> Columns:
    first, last = truth.segments[index]
    loss = _printed_loss(truth, rng, steps, behind)
    loss_mean = _printed_loss(truth, rng, steps, Behind.INTERVAL) if means else loss
    eval_train, eval_val = _evaluations(truth, rng, eval_steps, fixed)
    bad = truth.trouble.bad_from
    if bad is not None:
        loss[steps >= bad] = loss_mean[steps >= bad] = float(truth.trouble.bad_word)
        eval_train[eval_steps >= bad] = np.nan
        eval_val[eval_steps >= bad] = np.nan
    seconds = _seconds(truth.process(index), rng, steps, eval_steps if stretched else np.zeros(0))
    rate = (truth.trouble.second_schedule if index and truth.trouble.second_schedule else truth.schedule).at(
        steps
    )
    return Columns(
        first=first,
        last=last,
        step=steps.astype(int).tolist(),
        loss=loss.tolist(),
        loss_mean=loss_mean.tolist(),
        seconds=seconds.tolist(),
        rate=rate.tolist(),
        grad_norm=_grad_norms(truth, rng, steps).tolist(),
        eval_step=eval_steps.astype(int).tolist(),
        eval_train=eval_train.tolist(),
        eval_val=eval_val.tolist(),
    )


def _printed_loss(truth: Truth, rng: np.random.Generator, steps: Floats, behind: Behind) -> Floats:
    tokens, interval = truth.tokens_per_step, truth.log_interval
    at = steps
    match behind:
        case Behind.MICRO_BATCH | Behind.SMOOTHED:
            tokens = truth.micro_batch * truth.shape.block_size
        case Behind.INTERVAL:
            tokens *= interval
            at = np.maximum(0.0, steps - interval / 2)
    if behind is Behind.SMOOTHED:
        at = np.maximum(steps / 2, steps - 9.0)
    noise = rng.standard_normal(len(steps)) * truth.noise * np.sqrt(1024 / tokens)
    # An untrained model is equally bad on all text: its losses scatter far less than a trained one's.
    noise *= 1.0 - (1.0 - UNTRAINED_SCATTER) * np.exp(-steps / (0.3 * truth.transient_steps))
    if behind is Behind.SMOOTHED:
        noise = _smoothed(noise, interval)
    dropout = truth.dropout_offset * (1.0 - np.exp(-steps / truth.transient_steps))
    printed: Floats = (train_loss(truth, at) + dropout + noise) * truth.trouble.loss_scale
    return printed


def _smoothed(noise: Floats, interval: int) -> Floats:
    """The noise of a running average with decay 0.9 a step, seen at every `interval`th step."""
    kept = SMOOTHING**interval
    noise = noise * np.sqrt((1 - SMOOTHING) / (1 + SMOOTHING))
    fresh = float(np.sqrt(1 - kept**2))
    smoothed, value = [], 0.0
    for drawn in noise.tolist():
        value = kept * value + fresh * drawn
        smoothed.append(value)
    return np.array(smoothed)


def _evaluations(
    truth: Truth, rng: np.random.Generator, steps: Floats, fixed: Floats
) -> tuple[Floats, Floats]:
    share = FIXED_EVAL_SHARE if truth.eval_fixed else 1.0
    trained = np.where(steps > 0, 1.0, UNTRAINED_SCATTER)
    noise = rng.normal(0.0, truth.eval_error * share, (2, len(steps))) * trained
    train = train_loss(truth, steps) + noise[0] + fixed[0] * trained
    val = validation_loss(truth, steps) + noise[1] + fixed[1] * trained
    return train, val


def _seconds(truth: Truth, rng: np.random.Generator, steps: Floats, eval_steps: Floats) -> Floats:
    drift = TIME_DRIFT * np.sin(steps / max(1.0, truth.last_step) * 5.0)
    seconds = truth.step_seconds * np.exp(rng.normal(0.0, TIME_SPREAD, len(steps)) + drift)
    trouble = truth.trouble
    if trouble.bad_from is not None and truth.dtype == "float16":
        seconds = np.where(steps >= trouble.bad_from, seconds * SKIPPED_UPDATE_SPEED, seconds)
    for step, factor in trouble.stalls.items():
        seconds[steps == step] *= factor
    if len(steps):
        seconds[0] += truth.compile_seconds
    if len(eval_steps):
        due = set(eval_steps.tolist())
        evaluated = np.array([step in due for step in steps.tolist()], dtype=np.float64)
        extra = truth.eval_seconds + np.where(steps > 0, truth.checkpoint_seconds, 0.0)
        seconds = seconds + evaluated * extra * np.exp(rng.normal(0.0, 0.01, len(steps)))
    return seconds


def _grad_norms(truth: Truth, rng: np.random.Generator, steps: Floats) -> Floats:
    settled = 0.3 + 1.0 / (1.0 + steps / (0.5 * truth.transient_steps)) ** 1.5 * 2.0
    norms = settled * np.exp(rng.normal(0.0, 0.1, len(steps)))
    trouble = truth.trouble
    for rise in (*trouble.spikes, *([trouble.divergence] if trouble.divergence else [])):
        near = np.abs(steps - rise.step) <= 2 * rise.half_steps
        norms = np.where(near, norms * 8, norms)
    if trouble.bad_from is not None:
        norms = np.where(steps >= trouble.bad_from, np.nan, norms)
    return norms

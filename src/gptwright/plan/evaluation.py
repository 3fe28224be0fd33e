"""What a run's evaluations cost, and what they will be able to say.

Each takes eval_iters × batch_size windows of either split, as many as there are at most, in a forward pass
alone. nanoGPT's recipe for characters evaluates 25,600 windows after every 250 steps of 64, which is a third
of the run's time; a plan that counts training alone is wrong by that.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from gptwright import units
from gptwright.arithmetic.evaluation import FEWEST_WINDOWS, UNSURE_SPLIT, EvaluationError, evaluation_error
from gptwright.arithmetic.known_datasets import known_facts
from gptwright.config.schema import TrainConfig
from gptwright.facts import Fact, configured, derived
from gptwright.findings import Action, Confidence, Finding, Severity
from gptwright.plan.plan import Plan

# A forward pass is one pass of three: the backward pass is twice its work.
FORWARD_SHARE = 1 / 3
# Two losses of this standard error differ by up to 0.14 nats for no reason, more than recipes do.
VERY_NOISY = 0.05
# More evaluation than training is worth saying; less is a matter of taste.
COSTLY = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluations:
    """All evaluations of a run.

    Attributes:
        count: how many there are: one after every eval_interval steps from the first on, and one at the end.
        windows: of both splits, in one of them.
        seconds: that all take: low, likely, high; None where the device's speed is not known.
    """

    count: int
    windows: int
    seconds: tuple[float, float, float] | None


def evaluations(plan: Plan) -> Evaluations:
    """The evaluations that a plan's settings ask for."""
    config = plan.config
    count = 1 if config.eval_only else math.ceil(config.max_iters / config.eval_interval) + 1
    windows = sum(_windows(config, tokens) for tokens in (plan.train_tokens, plan.val_tokens))
    if plan.speed is None:
        return Evaluations(count=count, windows=windows, seconds=None)
    work = FORWARD_SHARE * count * windows * config.block_size
    speed = plan.speed
    return Evaluations(
        count=count, windows=windows, seconds=(work / speed.high, work / speed.likely, work / speed.low)
    )


def _windows(config: TrainConfig, tokens: Fact | None) -> int:
    """Windows of a split in one evaluation: those without overlap at most."""
    asked = config.eval_iters * config.batch_size
    return asked if tokens is None else min(asked, max(1, int(tokens.number - 1) // config.block_size))


def evaluation_findings(plan: Plan) -> tuple[Finding, ...]:
    """That evaluations cost more than they should, or cannot say what they are for."""
    found = (_costly(plan), _rare(plan), _small_split(plan), *_noisy(plan))
    return tuple(finding for finding in found if finding is not None)


def _costly(plan: Plan) -> Finding | None:
    cost = evaluations(plan)
    if cost.seconds is None or plan.seconds is None or plan.config.eval_only:
        return None
    share = cost.seconds[1] / plan.seconds[1]
    if share < COSTLY or cost.count < 3:
        return None
    interval = math.ceil(plan.config.eval_interval * share / 0.1)
    return Finding(
        id="costly-evaluation",
        severity=Severity.INFO,
        confidence=Confidence.LIKELY,
        message=f"{cost.count:,} evaluations of {cost.windows:,} windows take about"
        f" {units.duration(cost.seconds[1])}, {units.ratio(share)} times the training itself.",
        evidence=(
            *_settings(plan, "eval_interval", "eval_iters", "batch_size", "max_iters"),
            derived("evaluation_seconds", cost.seconds[1], "a forward pass of three", unit="seconds"),
        ),
        actions=(
            Action(
                f"Every {interval:,} steps, or with a part of the windows, they would cost a tenth of it.",
                {"eval_interval": interval},
            ),
        ),
    )


def _rare(plan: Plan) -> Finding | None:
    config = plan.config
    if config.eval_only or config.eval_interval <= config.max_iters:
        return None
    interval = max(1, config.max_iters // 10)
    return Finding(
        id="rare-evaluation",
        severity=Severity.INFO,
        confidence=Confidence.CERTAIN,
        message=f"eval_interval {config.eval_interval:,} is beyond the {config.max_iters:,} steps of the run:"
        " validation is known before the first and after the last alone, and nanoGPT, which saves at"
        " evaluations, would keep no checkpoint.",
        evidence=_settings(plan, "eval_interval", "max_iters"),
        actions=(Action("Evaluate ten times in the run.", {"eval_interval": interval}),),
    )


def _error(plan: Plan) -> EvaluationError:
    """Of a validation loss, whose windows are the same at every evaluation here."""
    return evaluation_error(
        batches=plan.config.eval_iters,
        batch_size=plan.config.batch_size,
        block_size=plan.config.block_size,
        split_tokens=plan.val_tokens.number if plan.val_tokens is not None else None,
        vocab_size=plan.shape.vocab_size,
        fixed=plan.val_tokens is not None,
    )


def _small_split(plan: Plan) -> Finding | None:
    """Of a split of somebody's own; what nanoGPT's scripts make is as it is."""
    tokens, usual = plan.val_tokens, known_facts(plan.config.dataset).get("val_tokens")
    if tokens is None or (usual is not None and tokens.value == usual.value):
        return None
    unsure, windows = _error(plan).of_split, tokens.number / plan.config.block_size
    if unsure is None or (windows >= FEWEST_WINDOWS and unsure <= UNSURE_SPLIT):
        return None
    return Finding(
        id="small-val-split",
        severity=Severity.WARNING,
        confidence=Confidence.CERTAIN,
        message=f"The validation split has {tokens.text} tokens, about {windows:.1f} windows of"
        f" {plan.config.block_size:,}: its mean is unsure by about {unsure:.2f} nats, whatever eval_iters"
        " is.",
        evidence=(tokens, *_settings(plan, "block_size")),
        actions=(
            Action(
                "Prepare the data with a split of at least a million tokens: gptwright prepare --split hash."
            ),
        ),
    )


def _noisy(plan: Plan) -> Iterator[Finding]:
    error = _error(plan)
    if error.of_mean <= VERY_NOISY:
        return
    batches = math.ceil(plan.config.eval_iters * (error.of_mean / 0.02) ** 2)
    yield Finding(
        id="noisy-eval",
        severity=Severity.INFO,
        confidence=Confidence.LIKELY,
        message=f"{error.windows:,} windows leave each validation loss unsure by about {error.of_mean:.2f}"
        " nats: against another run's or a published one, less than twice that means nothing.",
        evidence=(
            *_settings(plan, "eval_iters", "batch_size", "block_size"),
            derived("standard_error", error.of_mean, error.basis, unit="nats"),
        ),
        actions=(Action(f"eval_iters = {batches} would bring it to 0.02.", {"eval_iters": batches}),),
    )


def _settings(plan: Plan, *names: str) -> tuple[Fact, ...]:
    return tuple(configured(name, getattr(plan.config, name)) for name in names)

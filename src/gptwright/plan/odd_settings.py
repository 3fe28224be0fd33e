"""Settings of the optimizer with which no known run trained: what would come of them no curve says.

A plan that promised the loss of a tuned run to a rate of 1e-6 would be worse than one that says nothing.
Rates that are too high are judged with the rules of diagnosis, which know of them from logs.
"""

import math
from collections.abc import Iterator

from gptwright.arithmetic.scaling import GPT3_BATCH, GPT3_RATE, GPT3_WIDTH
from gptwright.config.pretrained import NO_WEIGHTS
from gptwright.config.schema import TrainConfig
from gptwright.facts import Fact, configured, derived, tabled
from gptwright.findings import Action, Confidence, Finding, Severity, Unknown

# Wider networks take less than GPT-3's rate, and by the square-root rule smaller batches do too. Narrow
# networks take up to so many times as much.
MOST_FOR_NARROW = 3.0
# Within a factor of three the loss hardly depends on the rate; at a tenth it is plainly higher.
FAR_BELOW = 10
# Published runs have 0 to 0.1; 1.0 was tried, against overfitting (arXiv 2605.01640).
MOST_DECAY = 1.0
# Dropout is for text that is seen again and again; nanoGPT: "for pretraining 0 is good".
FRESH_PASSES = 2.0
NO_PROMISE = Unknown(
    "What loss may be expected?",
    "a run with usual settings of the optimizer, as all runs have whose curves are known",
)


def is_like_known_runs(config: TrainConfig) -> bool:
    """Whether the optimizer's settings are such as runs have whose curves are known."""
    return _usual_rate_if_far(config) is None and not list(_odd_optimizer(config))


def settings_findings(config: TrainConfig, *, epochs: float | None) -> tuple[Finding, ...]:
    """What of the settings will not do what was meant.

    Args:
        config: the settings.
        epochs: planned passes over the data, where that is known.
    """
    if config.eval_only:
        return ()
    return (*_low_rate(config), *_odd_optimizer(config), *_idle_dropout(config, epochs))


def _from_scratch(config: TrainConfig) -> bool:
    return config.init_from in NO_WEIGHTS


def _usual_rate_if_far(config: TrainConfig) -> Fact | None:
    """The usual rate where the planned one is far below it."""
    if config.optimizer != "adamw" or not _from_scratch(config) or config.eval_only:
        return None
    tokens = config.sequences_per_step * config.block_size
    width = min(MOST_FOR_NARROW, GPT3_WIDTH / config.n_embd)
    usual = GPT3_RATE * width * math.sqrt(min(1.0, tokens / GPT3_BATCH))
    if config.learning_rate >= usual / FAR_BELOW:
        return None
    formula = f"{GPT3_RATE:g} · {GPT3_WIDTH} / n_embd · sqrt(tokens_per_step / {GPT3_BATCH:,})"
    return derived("usual_rate", float(f"{usual:.2g}"), formula)


def _low_rate(config: TrainConfig) -> Iterator[Finding]:
    usual = _usual_rate_if_far(config)
    if usual is None:
        return
    tokens = f"{config.sequences_per_step * config.block_size:,}"
    yield Finding(
        id="low-learning-rate",
        severity=Severity.WARNING,
        confidence=Confidence.LIKELY,
        message=f"A learning rate of {config.learning_rate:g} is"
        f" 1/{usual.number / config.learning_rate:,.0f} of what networks of this width train with from"
        f" scratch, about {usual.number:g} at {tokens} tokens a step: most of the run's"
        " tokens would teach little.",
        evidence=(
            *_settings(config, "learning_rate", "n_embd"),
            usual,
            tabled("reference_rate", GPT3_RATE, "GPT-3", "125M: 6e-4 at 0.5M tokens a step"),
        ),
        actions=(
            Action(
                "Take the usual rate.",
                {"learning_rate": usual.number, "min_lr": float(f"{usual.number / 10:.2g}")},
            ),
        ),
    )


def _odd_optimizer(config: TrainConfig) -> Iterator[Finding]:
    if config.beta1 > config.beta2:
        yield Finding(
            id="odd-optimizer",
            severity=Severity.WARNING,
            confidence=Confidence.LIKELY,
            message=f"beta1 = {config.beta1:g} is above beta2 = {config.beta2:g}: the mean gradient would be"
            " longer than the mean square that it is divided by. They may be swapped.",
            evidence=_settings(config, "beta1", "beta2"),
            actions=(Action("Take GPT-3's.", {"beta1": 0.9, "beta2": 0.95}),),
        )
    if config.weight_decay > MOST_DECAY and config.optimizer == "adamw":
        steps = 1 / (config.learning_rate * config.weight_decay)
        yield Finding(
            id="odd-optimizer",
            severity=Severity.WARNING,
            confidence=Confidence.LIKELY,
            message=f"weight_decay = {config.weight_decay:g} at a rate of {config.learning_rate:g} shrinks"
            f" every matrix by a factor of e in {steps:,.0f} steps; published runs have 0 to 0.1.",
            evidence=_settings(config, "weight_decay", "learning_rate"),
            actions=(Action("Take GPT-3's.", {"weight_decay": 0.1}),),
        )


def _idle_dropout(config: TrainConfig, epochs: float | None) -> Iterator[Finding]:
    if not config.dropout or not _from_scratch(config) or epochs is None or epochs > FRESH_PASSES:
        return
    yield Finding(
        id="idle-dropout",
        severity=Severity.INFO,
        confidence=Confidence.LIKELY,
        message=f"dropout = {config.dropout:g} over {epochs:.1f} passes: it keeps a model from memorizing"
        " text that is seen again and again, and here hardly any is, so it only slows learning.",
        evidence=(
            *_settings(config, "dropout"),
            derived("epochs", epochs, "planned tokens / training tokens"),
        ),
        actions=(Action("Train without dropout.", {"dropout": 0.0}),),
    )


def _settings(config: TrainConfig, *names: str) -> tuple[Fact, ...]:
    return tuple(configured(name, getattr(config, name)) for name in names)

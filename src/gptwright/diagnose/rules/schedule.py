"""The plan's own numbers: its length, its passes over the data, its schedule, its batch."""

from collections.abc import Iterator, Sequence

from gptwright import units
from gptwright.arithmetic.scaling import FRESH_PASSES, value_of_next_pass
from gptwright.diagnose.length import sensible_length
from gptwright.diagnose.meant_rate import meant_rate
from gptwright.diagnose.rate import rate_evidence
from gptwright.diagnose.reading import Reading
from gptwright.diagnose.rule import Rule, Verdict, finding
from gptwright.diagnose.settings import Settings
from gptwright.facts import Fact, derived
from gptwright.findings import Action, Cause, Confidence, Severity

DAY = 86_400.0
# People who train at home plan in days up to a week; twice that is beyond what anybody meant.
LONG_SECONDS = 14 * DAY
# Fifty times compute-optimal. The longest published runs of small models stop near it.
LONG_TOKENS_PER_PARAMETER = 1000
# Muennighoff et al. 2023: over forty passes a token is worth 0.38 of a fresh one on average, the next pass
# 0.08 of one, and all passes together never more than 16.4.
LONG_EPOCHS = 40

# Over sixteen passes a token is worth two thirds of a fresh one.
MEMORIZING_EPOCHS = 16

# "Far below": a batch of less than a sixth, at more than twice the rate that the square-root rule gives for
# it. Within a factor of two the loss hardly depends on the rate.
SMALL_BATCH, HIGH_RATE = 6, 2
# A rate that ends so near its peak is a constant one, which costs 0.08 to 0.15 nats at GPT-2 size.
HARDLY_LOWER = 0.9


def long_plan(reading: Reading) -> Iterator[Verdict]:
    """A plan is absurdly long when it takes more than two weeks on the devices named, holds more than 1,000
    tokens per parameter (fifty times compute-optimal), or passes over the data more than 40 times. nanoGPT's
    default of 600,000 steps was meant for eight A100s and is inherited by every config that does not change
    it. Time is used only where a log or a plan tells the speed. Sources: Muennighoff et al. 2023 (arXiv
    2305.16264) for repeated data; nanoGPT issue 179 (32 to 35 days for the default on one card).
    """
    progress, parameters = reading.progress, reading.sizes.parameters
    steps, tokens = progress.planned_steps, progress.planned_tokens
    if steps is None:
        return
    reasons, evidence = [], [steps, tokens]
    seconds = reading.planned_seconds
    if seconds is not None and seconds.number > LONG_SECONDS:
        reasons.append(f"{seconds.number / DAY:,.0f} days")
        evidence.append(seconds)
    if tokens is not None and parameters is not None:
        ratio = tokens.number / parameters.number
        if ratio > LONG_TOKENS_PER_PARAMETER:
            reasons.append(f"{ratio:,.0f} tokens per parameter")
            formula = f"{tokens.text} tokens / {parameters.text} parameters"
            evidence += [parameters, derived("planned_tokens_per_parameter", ratio, formula)]
    epochs = progress.planned_epochs
    if epochs is not None and epochs.number > LONG_EPOCHS:
        reasons.append(f"{epochs.number:,.0f} passes over the data")
        evidence.append(epochs)
    if not reasons:
        return
    # Of passes that were made `many-epochs` warns.
    told = len(reasons) == 1 and epochs is not None and _passes_made(reading) > LONG_EPOCHS
    yield finding(
        "long-plan",
        Severity.INFO if told else Severity.WARNING,
        Confidence.CERTAIN,
        f"The planned {steps.number:,.0f} steps are {', '.join(reasons)}.",
        evidence,
        actions=[] if _turned(reading) else sensible_length(reading, seconds_at_most=LONG_SECONDS),
    )


def _passes_made(reading: Reading) -> float:
    """Passes over the data that a log shows."""
    made = reading.progress.epochs
    return made.number if reading.log is not None and made is not None else 0.0


def _turned(reading: Reading) -> bool:
    """Whether validation has turned: `overfitting` then says where to stop."""
    if reading.log is None:
        return False
    from gptwright.diagnose.evaluation import turning_point  # with numpy, which a plan has no use for

    return turning_point(reading) is not None


def schedule_mismatch(reading: Reading) -> Iterator[Verdict]:
    """The cosine ends where the run ends, the warm-up is a small part of it, and the rate falls. A decay that
    is longer than the run leaves the learning rate high at the end, which costs 0.08 to 0.15 nats at GPT-2
    size; a warm-up longer than the run never reaches the rate that was asked for. Only settings that are
    written down count; nanoGPT's defaults join in where a config of its own sets the other half, because then
    they do apply. Source: nanoGPT's train.py ("should be ~= max_iters"); public runs with a constant rate
    before their decay.
    """
    faults, settings = schedule_faults(reading), reading.settings
    steps = settings.number("max_iters")
    if not faults or steps is None:
        return
    total = int(steps)
    taken_for_granted = [
        name for name in ("lr_decay_iters", "warmup_iters") if settings.get(name) and not settings.named(name)
    ]
    yield finding(
        "schedule-mismatch",
        Severity.WARNING,
        Confidence.LIKELY if taken_for_granted else Confidence.CERTAIN,
        "The schedule does not fit the run: " + "; ".join(faults) + ".",
        settings.facts("max_iters", "lr_decay_iters", "warmup_iters", "learning_rate", "min_lr"),
        actions=_schedule_that_fits(settings, total, faults),
    )


def _schedule_that_fits(settings: Settings, steps: int, faults: Sequence[str]) -> list[Action]:
    """What to set: a lowest rate where that is the fault, and a decay and warm-up where these are."""
    rate, actions = settings.number("learning_rate"), []
    of_the_lowest = [fault for fault in faults if fault.startswith("min_lr")]
    if len(of_the_lowest) < len(faults):
        fitting = {"lr_decay_iters": steps, "warmup_iters": max(1, min(2000, steps // 20))}
        actions.append(
            Action("Let the decay end with the run and warm up over a few percent of it.", fitting)
        )
    if of_the_lowest and rate is not None:
        actions.append(Action("Decay to a tenth of the rate.", {"min_lr": float(f"{rate / 10:.3g}")}))
    return actions


def schedule_faults(reading: Reading) -> list[str]:
    """What of the schedule does not fit the run, in words."""
    settings = reading.settings
    if settings.flag("decay_lr") is False or settings.named("max_iters") is None:
        return []
    steps = settings.number("max_iters")
    decay, warmup = settings.number("lr_decay_iters"), settings.number("warmup_iters")
    assert steps is not None
    faults = []
    if decay is not None and decay > 1.1 * steps:
        faults.append(f"the decay is planned over {decay:,.0f} steps and the run ends at {steps:,.0f}")
    if decay is not None and decay < 0.8 * steps:
        faults.append(f"the decay ends at step {decay:,.0f} of {steps:,.0f}, and the rest runs at min_lr")
    if warmup is not None and warmup >= steps:
        faults.append(f"the warm-up of {warmup:,.0f} steps never ends")
    elif warmup is not None and warmup > 0.25 * steps:
        faults.append(f"the warm-up of {warmup:,.0f} steps is {warmup / steps * 100:.0f} % of the run")
    rate, lowest = settings.number("learning_rate"), settings.number("min_lr")
    if rate is not None and lowest is not None and lowest > rate:
        faults.append(f"min_lr {lowest:g} is above learning_rate {rate:g}")
    elif rate and lowest is not None and lowest >= HARDLY_LOWER * rate and reading.starts_from_scratch:
        faults.append(f"min_lr {lowest:g} is learning_rate {rate:g} again, so that nothing decays")
    return faults


def small_batch_for_lr(reading: Reading) -> Iterator[Verdict]:
    """6e-4 at GPT-2 small's width is meant for half a million tokens a step (GPT-3's table). With a smaller
    batch the gradient is noisier and the rate has to fall, by about the square root. It fires where the batch
    is less than a sixth of the reference and the rate more than twice what that rule gives; within that the
    loss hardly depends on it. The reference batch shrinks for short runs (2^18 tokens at 0.44B, growing as
    D^0.383). Models below 60M take higher rates for smaller batches, by a law fitted on such (DeepSeek LLM).
    Rates of fine-tuning and character models are not judged: nothing comparable is known for them. Where a
    log shows that the model learned context all the same, it is no warning: the loss may be higher than it
    had to be, and that is what `above-reference` is about.
    Sources: GPT-3's table of rates; arXiv 2505.13738 for the batch; arXiv 2401.02954 for small models;
    nanoGPT issues 303 and 468 and pull request 145.
    """
    rate, per_step = reading.settings.named("learning_rate"), reading.speed.tokens_per_step
    meant = meant_rate(reading)
    if rate is None or per_step is None or meant is None:
        return
    fitting, reference = meant.fitting, meant.tokens_per_step
    if per_step.number * SMALL_BATCH > reference or rate.number <= HIGH_RATE * fitting.number:
        return
    steps = round(reference / per_step.number)
    accumulation = reading.settings.integer("gradient_accumulation_steps") or 1
    trains = _trains_all_the_same(reading)
    yield finding(
        "small-batch-for-lr",
        Severity.INFO if trains else Severity.WARNING,
        Confidence.POSSIBLE if trains else Confidence.LIKELY,
        f"{per_step.text} tokens a step are 1/{steps} of the {reference:,.0f} that a rate of"
        f" {meant.rate:.1g} {meant.model} is meant for; by the square-root rule the rate would"
        f" be {fitting.number:.1e}, and it is {rate.number:g}."
        f"{' The loss fell all the same; a lower rate may bring it further.' if trains else ''}",
        [rate, per_step, *reading.settings.facts("n_embd"), meant.source, fitting],
        causes=[
            Cause(
                "accumulation was lowered, or written for several devices, and the rate kept",
                Confidence.POSSIBLE,
            )
        ],
        actions=[
            Action(
                f"Accumulate {steps} times as much: the same memory, and as many fewer steps for the same"
                " tokens.",
                {"gradient_accumulation_steps": accumulation * steps},
            ),
            Action(f"Or lower the rate to about {fitting.number:.1e}.", {"learning_rate": rounded(fitting)}),
        ],
    )


def _trains_all_the_same(reading: Reading) -> bool:
    if reading.log is None:
        return False
    from gptwright.diagnose.stuck import learns_context  # with numpy, which a plan has no use for

    return learns_context(reading)


def rounded(rate: Fact) -> float:
    """A rate of two digits, as people set it."""
    return float(f"{rate.number:.1e}")


def high_learning_rate(reading: Reading) -> Iterator[Verdict]:
    """A rate of more than three times the highest that tuned AdamW runs of this width use (1.8e-3 at width
    768, proportionally more for narrower networks). It is said of a plan only: what such a rate did to a run,
    its log shows, and divergence, stuck-loss or above-reference then name it as the cause. Sources: GPT-3's
    table of rates; tuned public runs of 124M; Wortsman et al. 2023 (arXiv 2309.14322) on where training
    without QK norm becomes unstable.
    """
    evidence = rate_evidence(reading)
    if not evidence or reading.log is not None:
        return
    rate, tuned = evidence
    yield finding(
        "high-learning-rate",
        Severity.WARNING,
        Confidence.LIKELY,
        f"A learning rate of {rate.number:g} is {units.ratio(rate.number / tuned.number)} times the highest"
        f" that is known to train at this width, {tuned.number:g}: expect spikes, a loss that stays high, or"
        " NaN.",
        [rate, tuned, *reading.settings.facts("n_embd")],
        actions=[
            Action(
                f"Begin at {tuned.number / 3:.1e} and go up.",
                {"learning_rate": float(f"{tuned.number / 3:.1e}")},
            )
        ],
    )


def many_epochs(reading: Reading) -> Iterator[Verdict]:
    """Up to about four passes over the data a repeated token is worth a fresh one; over sixteen it is worth
    two thirds of one on average, over forty 0.38, and all passes together are never worth more than 16
    (Muennighoff et al. 2023). From sixteen on training loss measures memory, and only validation says what
    was learned. It counts the passes that were made, or that a plan without a log holds; of a plan with more
    than forty `long-plan` warns.
    """
    epochs = reading.progress.epochs or (reading.progress.planned_epochs if reading.log is None else None)
    if epochs is None or epochs.number <= FRESH_PASSES:
        return
    seen, unique = reading.progress.tokens_seen, reading.settings.get("train_tokens")
    worth = value_of_next_pass(epochs.number)
    memorizing = epochs.number > MEMORIZING_EPOCHS
    told = reading.log is None and epochs.number > LONG_EPOCHS
    yield finding(
        "many-epochs",
        Severity.WARNING if memorizing and not told else Severity.INFO,
        Confidence.CERTAIN,
        f"{epochs.number:,.1f} passes over {unique.text if unique else 'the'} training tokens; one more is"
        f" worth {worth:.2f} of a fresh one. {_of_training_loss(reading, memorizing=memorizing)}",
        [epochs, seen or reading.progress.planned_tokens, unique],
        actions=[Action("Add text, or end the run earlier.")],
    )


def _of_training_loss(reading: Reading, *, memorizing: bool) -> str:
    if reading.log is None:
        return "Training loss will measure memorization; watch validation."
    if memorizing:
        return "Training loss measures memorization now; read validation."
    return "Training loss begins to measure memorization; read validation."


RULES = (
    Rule("long-plan", long_plan),
    Rule("schedule-mismatch", schedule_mismatch),
    Rule("small-batch-for-lr", small_batch_for_lr),
    Rule("high-learning-rate", high_learning_rate),
    Rule("many-epochs", many_epochs),
)

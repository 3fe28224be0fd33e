"""The training loss by itself: whether it falls, jumps, or goes back up."""

from collections.abc import Iterator

import numpy as np

from gptwright.arithmetic.trend import find_spikes
from gptwright.diagnose.evaluation import correlation_of_lines, training_rise
from gptwright.diagnose.gradients import norm_growth
from gptwright.diagnose.rate import half_the_rate, rate_cause
from gptwright.diagnose.reading import Reading
from gptwright.diagnose.resumed import jump_of_a_resume, rate_jumps
from gptwright.diagnose.rule import Rule, Verdict, finding, fires
from gptwright.diagnose.rules.schedule import small_batch_for_lr
from gptwright.diagnose.scale import uniform_loss
from gptwright.diagnose.series import train_loss
from gptwright.diagnose.stuck import flat_stretch, stuck_stretch
from gptwright.findings import Action, Cause, Confidence, Finding, Severity
from gptwright.record.evidence import IN_BITS, OF_CHARACTERS, OF_PERPLEXITIES

# A spike that comes back needs nothing; more than a few in a run are a rate or data problem.
MANY_SPIKES = 3
# Of a short log, one line in so many.
MANY_AMONG = 20
# A loss of so many digits never comes out the same twice while a model learns; so many lines are no chance.
# One near 0, as 0.012, has fewer, and a text that is known by heart stays there.
DIGITS_OF_NOISE, SAME_LINES = 4, 20
# What was printed there, or its digits, is another number: `ppl 24.1` may well stand in twenty lines.
RECKONED = OF_PERPLEXITIES, IN_BITS, OF_CHARACTERS


def stuck_loss(reading: Reading) -> Iterator[Verdict]:
    """A model that learns no context stays at the entropy of single tokens: 7.3 to 7.8 nats for GPT-2's
    vocabulary, two thirds of ln(vocabulary) or more for any, and 2.7 nats or more for letters. It fires when
    the warm-up is over and the later half of the run gained less than 0.1 nats there; a run that merely began
    is not stuck. A loss that is the same to its last decimal in twenty lines and more is told at any level:
    batches differ, so no update reaches the weights and none is drawn anew. Sources: nanoGPT issues 303 (7.81
    from step 20 on) and 468; litgpt issue 689; for letters Shannon 1951.
    """
    if (same := _same_throughout(reading)) is not None:
        yield same
        return
    stretch = stuck_stretch(reading)
    if stretch is None:
        return
    loss, half, uniform = train_loss(reading), stretch.lines, stretch.uniform
    yield finding(
        "stuck-loss",
        Severity.ERROR,
        Confidence.LIKELY,
        f"The loss is {stretch.end:.2f} at {reading.at(int(loss.step[-1]))} and was {stretch.start:.2f} at"
        f" {reading.at(int(half.step[0]))}: no progress below the level of token frequencies alone"
        f" ({stretch.level:.1f} and more of {uniform.text}). The model has learned"
        f" {'nothing: this is guessing' if stretch.guesses else 'no context'}.",
        [
            half.fact(0),
            loss.fact(len(loss) - 1),
            uniform,
            *reading.settings.facts("warmup_iters", "learning_rate"),
        ],
        causes=_nothing_arrives(reading)
        if stretch.guesses
        else [
            rate_cause(
                reading,
                "the learning rate is too high for this batch, or the gradient is clipped in every step",
                Confidence.LIKELY if fires(small_batch_for_lr, reading) else Confidence.POSSIBLE,
            ),
            Cause("attention mask, positions or targets are wrong", Confidence.POSSIBLE),
            Cause(
                "the data is shuffled token by token, or its ids do not match the vocabulary",
                Confidence.POSSIBLE,
            ),
        ],
        actions=[
            Action("Overfit one batch first: a correct model takes it to nearly 0 in a few hundred steps.")
        ],
    )


def flat_loss(reading: Reading) -> Iterator[Verdict]:
    """A rate that is too high for its batch also holds a loss where neighbouring tokens are learned and no
    context is: below the level of single tokens, and as flat. Small models over large vocabularies come to
    rest at such levels too, so it fires only where the batch is too small for the rate as well, and where the
    model is still short of tokens. Source: nanoGPT issues 303 and 468.
    """
    stretch = flat_stretch(reading) if stuck_stretch(reading) is None else None
    faults = [found for found in small_batch_for_lr(reading) if isinstance(found, Finding)]
    if stretch is None or not faults or training_rise(reading) is not None:
        return
    lines = stretch.lines
    yield finding(
        "stuck-loss",
        Severity.WARNING,
        Confidence.LIKELY,
        f"The loss is {stretch.end:.2f} at {reading.at(int(lines.step[-1]))} and was {stretch.start:.2f} at"
        f" {reading.at(int(lines.step[0]))}: it has not moved in three quarters of the run, at a level that"
        " a model which learns context leaves in some hundred steps.",
        [lines.fact(0), lines.fact(len(lines) - 1), stretch.uniform, *faults[0].evidence],
        causes=[rate_cause(reading, "the learning rate is too high for so small a batch", Confidence.LIKELY)],
        actions=list(faults[0].actions),
    )


def _nothing_arrives(reading: Reading) -> list[Cause]:
    """Why no update changes a model that still guesses."""
    rate, warmup, last = (
        reading.settings.get("learning_rate"),
        reading.settings.number("warmup_iters"),
        reading.progress.last_step,
    )
    causes = [
        Cause(
            "no update reaches the weights: the optimizer holds other parameters, or its step is never made",
            Confidence.POSSIBLE,
        ),
        Cause("the gradient is cut off: a detached loss, frozen layers", Confidence.POSSIBLE),
        Cause("the targets have nothing to do with the inputs", Confidence.POSSIBLE),
    ]
    if reading.machine.dtype == "float16":
        causes.insert(0, Cause("the loss scaler skips every update in float16", Confidence.POSSIBLE))
    if warmup is not None and last is not None and warmup >= last.number:
        causes.insert(0, Cause("the learning rate is still in its warm-up", Confidence.POSSIBLE))
    if rate is not None and rate.value == 0:
        causes.insert(0, Cause("the learning rate is 0", Confidence.LIKELY))
    return causes


def _same_throughout(reading: Reading) -> Verdict | None:
    """The finding of a loss that is exactly the same in all of its last lines."""
    loss, log = train_loss(reading), reading.log
    reckoned = log is not None and any(log.hazards.get(each) for each in RECKONED)
    if len(loss) < SAME_LINES or reckoned:
        return None
    last = float(loss.value[-1])
    changed = np.flatnonzero(loss.value != last)
    first = int(changed[-1]) + 1 if len(changed) else 0
    digits = len(f"{last!r}".replace(".", "").lstrip("0"))
    if len(loss) - first < SAME_LINES or digits < DIGITS_OF_NOISE:
        return None
    uniform = uniform_loss(reading)
    return finding(
        "stuck-loss",
        Severity.ERROR,
        Confidence.CERTAIN,
        f"The loss is exactly {last!r} in every line from {reading.at(int(loss.step[first]))} to"
        f" {reading.at(int(loss.step[-1]))}: batches differ, so a loss that never moves comes from weights"
        " that no update reaches and from outputs that ignore the input.",
        [loss.fact(first), loss.fact(len(loss) - 1), uniform, *reading.settings.facts("learning_rate")],
        causes=[
            Cause(
                "the learning rate is 0, or the optimizer holds other parameters than the model's",
                Confidence.POSSIBLE,
            ),
            Cause(
                "the output layer is 0 or NaN was replaced, so every token gets the same chance",
                Confidence.POSSIBLE,
            ),
            Cause(
                "the gradient is cut off: a detached loss, frozen layers, an update that is never made",
                Confidence.POSSIBLE,
            ),
        ],
        actions=[
            Action(
                "Print the gradient norm and one weight before and after a step: both have to be"
                " other than 0."
            )
        ],
    )


def divergence(reading: Reading) -> Iterator[Verdict]:
    """Training diverged when the loss rose from its best beyond all noise and stayed up to the end. Noise is
    measured from the run itself, and the threshold allows for looking at every line. A rise that came back is
    loss-spike; a rise of validation alone is overfitting; the rise after a raised learning rate is lr-jump.
    Sources: nanoGPT issues 137 and 554; Wortsman et al. 2023 (arXiv 2309.14322).
    """
    loss = train_loss(reading)
    rise = training_rise(reading)
    if rise is None or any(jump.step <= rise.began + 1 for jump in rate_jumps(reading)):
        return
    if jump_of_a_resume(reading) is not None:
        return
    row = int(np.searchsorted(loss.step, rise.began))
    evidence = [loss.fact(max(0, row - 1)), loss.fact(len(loss) - 1)]
    message = (
        f"The loss was {rise.lowest:.2f} and rose from {reading.at(rise.began)} on to {rise.level:.2f}, where"
        " it stayed: the run has diverged."
    )
    norm = norm_growth(reading, rise.began)
    if norm is not None:
        evidence += norm[1]
        message += norm[0]
    yield finding(
        "divergence",
        Severity.ERROR,
        Confidence.LIKELY,
        message,
        evidence,
        causes=[
            rate_cause(reading, "the learning rate is too high for this model and batch", Confidence.LIKELY),
            Cause("attention or output logits grew without bound", Confidence.POSSIBLE),
        ],
        actions=[
            Action(
                f"Go back to a checkpoint before {reading.at(rise.began)} and lower the learning rate.",
                half_the_rate(reading),
            )
        ],
    )


def loss_spike(reading: Reading) -> Iterator[Verdict]:
    """A spike is a rise far outside the noise of the lines around it that came back. One that comes back
    within a few hundred steps needs nothing but a note; many are a rate or data problem. The steep start, the
    warm-up and the rise after a resume or a resumed learning rate are left out. Source: llm.c's outlier
    detector (z-scores over a window); PaLM (arXiv 2204.02311) on what spikes are.
    """
    loss = train_loss(reading)
    if len(loss) < 40:
        return
    jumps, resumed = rate_jumps(reading), jump_of_a_resume(reading)
    spikes = [
        spike
        for spike in find_spikes(loss.step, loss.value, correlation=correlation_of_lines(reading))
        if spike.recovered_at is not None
        and not any(jump.step <= spike.peak for jump in jumps)
        and not (resumed is not None and resumed.step <= spike.peak <= (resumed.back or resumed.last))
    ]
    if not spikes:
        return
    worst = max(spikes, key=lambda spike: spike.height)
    row = int(np.searchsorted(loss.step, worst.peak))
    count = f"{len(spikes)} spikes; the highest" if len(spikes) > 1 else "One spike: it"
    many = len(spikes) > MANY_SPIKES or len(spikes) >= max(MANY_SPIKES, len(loss) / MANY_AMONG)
    yield finding(
        "loss-spike",
        Severity.WARNING if many else Severity.INFO,
        Confidence.LIKELY,
        f"{count} reached {loss.value[row]:.2f} at {reading.at(worst.peak)}, {worst.height:.2f} above the"
        f" lines around it, and was gone by {reading.at(worst.recovered_at or worst.peak)}.",
        [loss.fact(row)],
        causes=[
            Cause("a batch of unusual text", Confidence.POSSIBLE),
            rate_cause(reading, "a learning rate at its upper limit", Confidence.POSSIBLE),
        ],
        actions=[
            Action("Lower learning_rate or grad_clip.", half_the_rate(reading))
            if many
            else Action("Nothing, as long as they stay rare.")
        ],
    )


RULES = (
    Rule("stuck-loss", stuck_loss),
    Rule("stuck-loss", flat_loss),
    Rule("divergence", divergence),
    Rule("loss-spike", loss_spike),
)

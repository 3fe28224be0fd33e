"""What more steps would bring, and whether a plateau is one."""

import re
from collections.abc import Iterator

import numpy as np

from gptwright import units
from gptwright.arithmetic.trend import noise_of, slope
from gptwright.diagnose.forecast import band_of, forecast_run, is_warming_up, peak_rate
from gptwright.diagnose.reading import Reading
from gptwright.diagnose.rule import Rule, Verdict, finding, fires
from gptwright.diagnose.rules.failures import non_finite_loss
from gptwright.diagnose.rules.references import below_reference
from gptwright.diagnose.rules.schedule import long_plan
from gptwright.diagnose.rules.uniform import worse_than_uniform
from gptwright.diagnose.scale import other_unit
from gptwright.diagnose.series import Series, train_loss, val_loss
from gptwright.facts import Fact, derived, logged
from gptwright.findings import Action, Confidence, Severity, Unknown

PLATEAU = re.compile(
    r"plateau|flat|stagnat|converge|no(?:t)? (?:longer )?(?:improv|go(?:ing)? down)|stopped"
    r" (?:falling|improving)|levell?ed",
    re.IGNORECASE,
)
# The last line lies up to a log interval before the planned end.
NOT_FINISHED = 1.1
# A gain of less is not worth a day to anybody, and is within the seed noise of small models.
WORTH_A_RUN = 0.02
# Values of a curve that a slope with its interval needs.
FEWEST_FLAT = 8
# A change over all that is shown of at most this much is a plateau.
NEGLIGIBLE = 0.01


def still_improving(reading: Reading) -> Iterator[Verdict]:
    """More steps still pay where the loss falls significantly at the end and the curve's own continuation
    promises more than 0.02 nats for half as many steps again. A validation that has turned (overfitting) or a
    loss that is stuck or broken is not improving, training loss alone says nothing once the text is passed
    over for the fifth time, and a validation that is too good to be true is no measure. Source: the fit of
    this run's own curve; docs/scaling.md has its errors on public runs.
    """
    forecast = forecast_run(reading)
    if forecast is None or not forecast.falling or forecast.gain_from_half_more is None:
        return
    if forecast.gain_from_half_more < WORTH_A_RUN:
        return
    steps, planned = reading.progress.last_step, reading.progress.planned_steps
    assert steps is not None
    rules = (below_reference, worse_than_uniform, non_finite_loss)
    if other_unit(reading) or any(fires(rule, reading) for rule in rules):
        return
    finished = planned is None or planned.number <= NOT_FINISHED * steps.number
    longer = round(1.5 * steps.number)
    known, gain = not is_warming_up(reading), forecast.gain_from_half_more
    yield finding(
        "still-improving",
        Severity.INFO,
        Confidence.LIKELY,
        f"The loss was still falling at {'the end' if finished else f'step {steps.text}'}; "
        + (
            _by_half_more(reading, steps, gain)
            if known
            else f"most of the {steps.text} steps are warm-up, which does not tell what more will bring."
        ),
        [
            *forecast.evidence,
            steps,
            derived("gain", gain, "continuation of this run's own curve", unit="nats") if known else None,
        ],
        actions=[]
        if not finished and fires(long_plan, reading)
        else [
            (
                Action(f"Let it go on: {planned.number:,.0f} steps are planned.")
                if not finished and planned is not None
                else Action(f"Plan {longer:,} steps.", {"max_iters": longer, "lr_decay_iters": longer})
            )
        ],
    )


def _by_half_more(reading: Reading, steps: Fact, gain: float) -> str:
    """What half as many steps again would bring, and how long they take."""
    time = ""
    if reading.speed.step_seconds is not None:
        hours = steps.number / 2 * reading.speed.step_seconds.number / 3600
        time = f", about {hours:.1f} h at this speed" if hours >= 0.1 else ""
    return f"half as many steps again would lower it by {units.span(*band_of(gain))} nats{time}."


def plateau_unproven(reading: Reading) -> Iterator[Verdict]:
    """A plateau is proven when the upper end of the gain that is still possible is negligible. It is not
    while the learning rate is high (its decay alone brings 0.08 to 0.15 nats at GPT-2 size), nor from lines
    whose scatter is larger than the slope that is denied. It answers a claim (in the stated note) and says
    what would decide; without a claim it stays silent. Source: nanoGPT issue 461; docs/scaling.md for what a
    decay still brings.
    """
    note, loss = reading.settings.get("note"), train_loss(reading)
    if note is None or not PLATEAU.search(str(note.value)) or len(loss) < 5:
        return
    curve = _claimed_flat(val_loss(reading), loss)
    reasons, evidence = [], [note, curve.fact(0), curve.fact(len(curve) - 1)]
    line, noise = slope(curve.step, curve.value), noise_of(curve.value, curve.step)
    span = int(curve.step[-1] - curve.step[0])
    if line is not None and noise is not None:
        reasons.append(
            f"it fell by {-line.per_step * span:.2f} over the last {span:,} steps"
            if line.high * span < -WORTH_A_RUN
            else f"{len(curve)} values that scatter by {noise.sd:.2f} leave a change of"
            f" {line.low * span:+.3f} to {line.high * span:+.3f} over the {span:,} steps shown"
        )
        evidence.append(
            derived("scatter", noise.sd, f"of {len(curve)} values around their trend", unit="nats")
        )
    high = _rate_still_high(reading)
    if high is not None:
        reasons.append(high[0])
        evidence += high[1]
    if not reasons or (line is not None and high is None and -line.low * span < NEGLIGIBLE):
        return
    yield finding(
        "plateau-unproven",
        Severity.WARNING,
        Confidence.CERTAIN,
        f"A plateau cannot be read from this: {'; and '.join(reasons)}.",
        evidence,
        actions=[
            Action(
                "Evaluate a fixed validation set every few hundred steps, and let the learning rate decay to"
                " its end."
            ),
        ],
    )
    yield Unknown(
        "Is the loss really flat?",
        "evaluations with their error over a longer stretch, after the learning rate has decayed",
    )


def _claimed_flat(val: Series, lines: Series) -> Series:
    """What a claim is about: the later half of validation, of the lines where that has too few values, or all
    of a short stretch.
    """
    for curve in (val, lines):
        if not len(curve) or curve.step[0] >= curve.step[-1] / 2:
            continue
        half = curve.part(curve.step >= (curve.step[0] + curve.step[-1]) / 2)
        if len(half) >= FEWEST_FLAT:
            return half
    return val if len(val) >= FEWEST_FLAT else lines


def _rate_still_high(reading: Reading) -> tuple[str, list[Fact]] | None:
    """That the learning rate has most of its decay before it, as printed or as the schedule says."""
    train, settings, last = reading.train, reading.settings, reading.progress.last_step
    peak = peak_rate(reading)
    if train is not None and peak is not None:
        row = int(np.flatnonzero(np.isfinite(train.learning_rate))[-1])
        rate = float(train.learning_rate[row])
        if rate > 0.5 * peak:
            full = f"at its full {peak:.2g}" if rate > 0.99 * peak else f"{rate:.2g} of at most {peak:.2g}"
            if reading.log is not None and reading.log.format.prints_rate_multiple:
                full = f"at {rate / peak:.0%} of its peak"
            return f"the learning rate is still {full}", [logged("learning_rate", rate, int(train.line[row]))]
        return None
    end = settings.get("lr_decay_iters")
    if settings.flag("decay_lr") is False:
        return "the learning rate is constant, and its decay is still to come", [*settings.facts("decay_lr")]
    if end is None or last is None or last.number > 0.85 * end.number:
        return None
    text = f"the learning rate decays until step {end.number:,.0f} and this is step {last.number:,.0f}"
    return text, [end, last]


RULES = (
    Rule("still-improving", still_improving),
    Rule("plateau-unproven", plateau_unproven),
)

"""Where the run stands against what is known, and what more steps would bring."""

import re
from collections.abc import Iterator

import numpy as np

from gptwright import units
from gptwright.arithmetic.evaluation import UNSURE_SPLIT
from gptwright.arithmetic.reference import LossBand, dataset_family, floor
from gptwright.arithmetic.reference_characters import EASIER_SPLIT, SPREAD_OF_SPLITS, has_another_split
from gptwright.arithmetic.trend import noise_of, slope
from gptwright.diagnose.evaluation import error_by_design
from gptwright.diagnose.forecast import band_of, forecast_run, is_warming_up, peak_rate
from gptwright.diagnose.meant_rate import meant_rate
from gptwright.diagnose.rate import rate_cause, rate_evidence
from gptwright.diagnose.reading import Reading
from gptwright.diagnose.reference import recipe_of, reference_band
from gptwright.diagnose.rule import Rule, Verdict, finding, fires
from gptwright.diagnose.rules.failures import non_finite_loss
from gptwright.diagnose.rules.learning import divergence, stuck_loss
from gptwright.diagnose.rules.schedule import long_plan, rounded, schedule_faults
from gptwright.diagnose.rules.uniform import worse_than_uniform
from gptwright.diagnose.scale import loss_scale, other_unit
from gptwright.diagnose.series import Series, train_loss, val_loss
from gptwright.facts import Fact, derived, logged, tabled
from gptwright.findings import Action, Cause, Confidence, Severity, Unknown

# What is well below or above a reference: beyond its own band and the noise of the best evaluations.
BEYOND = 0.05
# Below the band of every recipe by this much: recipes that are not public yet gain less in a year.
BEYOND_ANY = 0.15
# Further above than any recipe without a fault: a fifth of the loss is ten times the tokens at GPT-2's size.
FAR_ABOVE = 1.2
# Rates of tuned runs lie within a factor of three of the rule's; ten times less has hardly learned.
FAR_BELOW_FITTING = 10
# A table of pairs of Shakespeare's characters, trained, has 2.45 to 2.5 in training and validation.
PAIRS = (2.4, 2.6)
PAIRS_IN_WORDS = (
    " It stays at the 2.45 to 2.5 that a table of pairs of characters reaches: the model uses the character"
    " before and nothing else."
)
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


def below_reference(reading: Reading) -> Iterator[Verdict]:
    """Every public corpus has a best known loss for a model of a size after a number of tokens, over all
    recipes. A validation clearly below it is more likely another corpus, a split that leaked into training,
    or a shorter context than a discovery. It needs a named dataset with a known floor and the same kind of
    vocabulary; above that floor it speaks only of recipes that have a curve on this data. Source: the public
    runs in arithmetic/reference_curves.toml (Shakespeare characters: none of this kind is below about 1.47 on
    nanoGPT's split, whose end of the text is harder than other splits).
    """
    val, dataset, vocabulary = val_loss(reading), reading.settings.get("dataset"), reading.vocab_size
    if not len(val) or dataset is None or vocabulary is None or not reading.starts_from_scratch:
        return
    best = int(np.argmin(val.value))
    lowest = floor(str(dataset.value), int(vocabulary.number))
    step = int(val.step[best])
    found = {recipe: reference_band(reading, step, recipe) for recipe in ("gpt2", "modern")}
    # A faster recipe than any that is known on this data may be below all that are.
    known = found.get(recipe_of(reading)) is not None
    bands = [band for band in found.values() if band is not None] if known else []
    limits = []
    if lowest is not None:
        honest = lowest.loss - lowest.margin - _easier_split(reading, str(dataset.value))
        limits.append((honest, lowest.basis, lowest.source))
    if bands:
        band = min(bands, key=lambda band: band.low)
        limits.append((band.low - BEYOND_ANY, band.basis, band.source))
    if not limits:
        return
    limit, basis, source = max(limits)
    if val.value[best] >= limit:
        return
    reference = tabled("best_known_loss", limit, "reference curves", source, unit="nats")
    yield finding(
        "below-reference",
        Severity.WARNING,
        Confidence.LIKELY,
        f"Validation {val.value[best]:.4f} is better than the {limit:.2f} that even the best known run of"
        f" this kind would reach ({basis}).",
        [val.fact(best), reference, dataset],
        causes=[
            Cause("validation text is also in the training data", Confidence.LIKELY),
            Cause("the data is not the one named", Confidence.LIKELY),
        ],
        actions=[Action("Check that no document is in both splits, and what the validation file holds.")],
    )


def _easier_split(reading: Reading, dataset: str) -> float:
    """How much lower an honest run over Shakespeare's characters may be on another split than nanoGPT's."""
    if dataset_family(dataset) != "shakespeare-char":
        return 0.0
    return (
        EASIER_SPLIT + SPREAD_OF_SPLITS if has_another_split(reading.settings.number("train_tokens")) else 0.0
    )


def above_reference(reading: Reading) -> Iterator[Verdict]:
    """The best validation of a run is held against the band that the nearest public curve gives for this
    model, data and number of tokens with a plain recipe. Above the band the recipe, not the size, costs
    something. Runs that broke (NaN, diverged, stuck) are told so by their own rules. It needs a named dataset
    with a curve and the same kind of vocabulary. A loss over Shakespeare's characters that stays at that of
    pairs of characters is named: the model uses the last character and no more. Source: the public runs in
    arithmetic/reference_curves.toml; docs/scaling.md says how the band was checked.
    """
    val = val_loss(reading)
    if not len(val) or loss_scale(reading) > 1 or other_unit(reading) or _broke(reading):
        return
    best = int(np.argmin(val.value))
    band = reference_band(reading, int(val.step[best]), recipe_of(reading))
    if band is None or val.value[best] <= band.high + BEYOND:
        return
    far = bool(val.value[best] > FAR_ABOVE * band.high)
    low = _rate_is_low(reading)
    pairs = _stays_at_pairs(reading)
    yield finding(
        "above-reference",
        Severity.WARNING,
        Confidence.LIKELY if far else Confidence.POSSIBLE,
        f"Validation {val.value[best]:.4f} is {'far ' if far else ''}above the {band.low:.2f} to"
        f" {band.high:.2f} that such a model reaches on this data after as many tokens ({band.basis})."
        + (PAIRS_IN_WORDS if pairs else ""),
        [
            val.fact(best),
            _band_fact(band),
            reading.settings.get("dataset"),
            reading.progress.tokens_seen,
            *rate_evidence(reading),
            *(low[1] if low is not None else ()),
        ],
        causes=[
            *(
                Cause(f"the schedule: {'; '.join(schedule_faults(reading))}", Confidence.LIKELY)
                for _ in schedule_faults(reading)[:1]
            ),
            *_of_an_apple_gpu(reading),
            low[0]
            if low is not None
            else rate_cause(reading, "the learning rate does not fit the batch", Confidence.POSSIBLE),
            Cause("attention does not reach earlier tokens: its mask or positions", Confidence.POSSIBLE)
            if pairs
            else Cause("the validation split is harder than the reference's", Confidence.POSSIBLE),
        ],
        actions=[] if low is None else [low[2]],
    )


def at_reference(reading: Reading) -> Iterator[Verdict]:
    """People hold their loss against another model's, or against the same one's after more tokens, and look
    for a fault in the device. Where the best validation lies in the band of comparable public runs, it is
    what such a configuration gives, on any device. Silent where the split is so small that its own mean is
    unsure by more than the band, and of runs that broke. Source: as above-reference.
    """
    val = val_loss(reading)
    if not len(val) or loss_scale(reading) > 1 or other_unit(reading) or _broke(reading):
        return
    best = int(np.argmin(val.value))
    band, design = reference_band(reading, int(val.step[best]), recipe_of(reading)), error_by_design(reading)
    if band is None or not band.low <= val.value[best] <= band.high:
        return
    if design is not None and design.of_split is not None and design.of_split > UNSURE_SPLIT:
        return
    yield finding(
        "at-reference",
        Severity.GOOD,
        Confidence.LIKELY,
        f"Validation {val.value[best]:.4f} is within the {band.low:.2f} to {band.high:.2f} that such a model"
        f" reaches on this data after as many tokens, on any device ({band.basis}).",
        [val.fact(best), _band_fact(band), reading.settings.get("dataset"), reading.progress.tokens_seen],
    )


def _rate_is_low(reading: Reading) -> tuple[Cause, list[Fact], Action] | None:
    """A learning rate far below what width and batch take: as a cause, with its evidence and what to set."""
    rate, meant = reading.settings.named("learning_rate"), meant_rate(reading)
    fitting = meant.fitting if meant is not None else _rate_of_the_recipe(reading)
    optimizer = reading.settings.word("optimizer") or "adamw"
    if rate is None or fitting is None or optimizer != "adamw" or not rate.number:
        return None
    if rate.number * FAR_BELOW_FITTING > fitting.number:
        return None
    text = (
        f"the learning rate of {rate.number:g} is 1/{fitting.number / rate.number:.0f} of the"
        f" {rounded(fitting):g} that {'this recipe has' if meant is None else 'fits this width and batch'}"
    )
    action = Action(
        f"Raise the learning rate to about {rounded(fitting):g}.", {"learning_rate": rounded(fitting)}
    )
    return Cause(text, Confidence.LIKELY), [rate, fitting], action


def _of_an_apple_gpu(reading: Reading) -> list[Cause]:
    """That torch may compute wrongly there without a word: pytorch issue 109457, build-nanogpt issue 92."""
    spec, kind = reading.machine.spec, reading.settings.word("device")
    if kind != "mps" and (spec is None or spec.vendor != "apple" or kind == "cpu"):
        return []
    text = "torch computed wrongly on the Apple GPU: run the same hundred steps with --device=cpu"
    return [Cause(text, Confidence.POSSIBLE)]


def _rate_of_the_recipe(reading: Reading) -> Fact | None:
    """The rate of the run that the reference over Shakespeare's characters is."""
    dataset = reading.settings.get("dataset")
    if dataset is None or dataset_family(str(dataset.value)) != "shakespeare-char":
        return None
    return tabled("fitting_rate", 1e-3, "nanoGPT", "config/train_shakespeare_char.py")


def _broke(reading: Reading) -> bool:
    """Whether the run broke or learned nothing, which has rules of its own."""
    rules = (non_finite_loss, divergence, stuck_loss, worse_than_uniform)
    return any(fires(rule, reading) for rule in rules)


def _stays_at_pairs(reading: Reading) -> bool:
    """Whether the later half of a run over Shakespeare's characters stays at the loss of pairs of them."""
    dataset, val = reading.settings.get("dataset"), val_loss(reading)
    if dataset is None or dataset_family(str(dataset.value)) != "shakespeare-char" or len(val) < 4:
        return False
    low, high = PAIRS
    late = val.value[len(val) // 2 :]
    return bool(late.min() >= low and late.max() <= high)


def _band_fact(band: LossBand) -> Fact:
    return tabled(
        "reference_loss", band.likely, "reference curves", f"{band.basis} ({band.source})", unit="nats"
    )


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
    Rule("below-reference", below_reference),
    Rule("above-reference", above_reference),
    Rule("at-reference", at_reference),
    Rule("still-improving", still_improving),
    Rule("plateau-unproven", plateau_unproven),
)

"""The best validation of a run against what public runs reached with such a model, on this data."""

from collections.abc import Iterator

import numpy as np

from gptwright.arithmetic.evaluation import UNSURE_SPLIT
from gptwright.arithmetic.reference import LossBand, dataset_family, floor
from gptwright.arithmetic.reference_characters import EASIER_SPLIT, SPREAD_OF_SPLITS, has_another_split
from gptwright.diagnose.evaluation import error_by_design
from gptwright.diagnose.meant_rate import meant_rate
from gptwright.diagnose.rate import rate_cause, rate_evidence
from gptwright.diagnose.reading import Reading
from gptwright.diagnose.reference import recipe_of, reference_band
from gptwright.diagnose.rule import Rule, Verdict, finding, fires
from gptwright.diagnose.rules.failures import non_finite_loss
from gptwright.diagnose.rules.learning import divergence, stuck_loss
from gptwright.diagnose.rules.schedule import rounded, schedule_faults
from gptwright.diagnose.rules.uniform import worse_than_uniform
from gptwright.diagnose.scale import loss_scale, other_unit
from gptwright.diagnose.series import val_loss
from gptwright.facts import Fact, tabled
from gptwright.findings import Action, Cause, Confidence, Severity

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


RULES = (
    Rule("below-reference", below_reference),
    Rule("above-reference", above_reference),
    Rule("at-reference", at_reference),
)

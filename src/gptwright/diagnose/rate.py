"""Whether a learning rate is beyond everything that is known to train well with AdamW.

GPT-3's table has 6e-4 at width 768, and the highest rate of tuned public runs of that width is 1.8e-3; wider
networks take proportionally less, narrower ones more. Networks of width 256 and more without QK norm become
unstable from about 1e-2 on (Wortsman et al. 2023, arXiv 2309.14322), so three times the tuned rate is no
matter of taste. Other optimizers and recipes count their rates otherwise and are not judged.
"""

from gptwright import units
from gptwright.config import ingredients
from gptwright.diagnose.reading import Reading
from gptwright.diagnose.sizes import usual_shape
from gptwright.facts import Fact, derived
from gptwright.findings import Cause, Confidence

TUNED_RATE, TUNED_WIDTH = 1.8e-3, 768
# Below a third of that width nothing is published.
LARGEST_GAIN = 3.0
FAR_BEYOND = 3.0


def tuned_rate(reading: Reading) -> Fact | None:
    """The highest rate that tuned AdamW runs of this width use, where the run's own is far beyond it."""
    settings = reading.settings
    rate = settings.named("learning_rate")
    if rate is None or not reading.starts_from_scratch or not _plain_adamw(reading):
        return None
    width = settings.integer("n_embd")
    if width is None:
        if reading.sizes.parameters is None:
            return None
        width = usual_shape(reading.sizes.parameters.number, settings).n_embd
    highest = TUNED_RATE * min(LARGEST_GAIN, TUNED_WIDTH / width)
    if rate.number <= FAR_BEYOND * highest:
        return None
    formula = (
        f"{TUNED_RATE:g} at width {TUNED_WIDTH}, the highest of tuned AdamW runs, × {TUNED_WIDTH} / {width}"
    )
    return derived("tuned_rate", float(f"{highest:.2g}"), formula)


def _plain_adamw(reading: Reading) -> bool:
    log, settings = reading.log, reading.settings
    if (settings.word("optimizer") or "adamw") != "adamw":
        return False
    if log is not None and log.format.name in ("modded-nanogpt", "nanochat", "autoresearch"):
        return False
    return ingredients.recipe_of(settings.ingredients(), "adamw") == "gpt2"


def rate_cause(reading: Reading, otherwise: str, confidence: Confidence) -> Cause:
    """The learning rate as a cause: with its number where that is far beyond what is known to train."""
    rate, tuned = reading.settings.named("learning_rate"), tuned_rate(reading)
    if rate is None or tuned is None:
        return Cause(otherwise, confidence)
    return Cause(
        f"the learning rate of {rate.number:g} is {units.ratio(rate.number / tuned.number)} times the highest"
        f" that is known to train at this width ({tuned.number:g})",
        Confidence.LIKELY,
    )


def rate_evidence(reading: Reading) -> tuple[Fact, ...]:
    """The rate and what it is held against, where it is far beyond that."""
    rate, tuned = reading.settings.named("learning_rate"), tuned_rate(reading)
    return (rate, tuned) if rate is not None and tuned is not None else ()


def half_the_rate(reading: Reading) -> dict[str, float]:
    """The setting of a rate half as high; empty where the run's own is not known."""
    rate = reading.settings.number("learning_rate")
    return {"learning_rate": rate / 2} if rate else {}

"""What comparable public runs reached, for this run's model, data, vocabulary and learning rate."""

import numpy as np

from gptwright.arithmetic.reference import LossBand, expected_loss
from gptwright.config import ingredients
from gptwright.diagnose.forecast import lr_fractions
from gptwright.diagnose.reading import Reading

# Enough for a smooth curve on a logarithmic and on an even axis.
CURVE_POINTS = 48


def recipe_of(reading: Reading) -> str:
    """What the run's recipe is: the fast one of the speedruns, or GPT-2's with AdamW."""
    if reading.log is not None and reading.log.format.name == "modded-nanogpt":
        return "modern"
    settings = reading.settings
    return ingredients.recipe_of(settings.ingredients(), settings.word("optimizer") or "adamw")


def reference_band(reading: Reading, step: int, recipe: str = "gpt2") -> LossBand | None:
    """The band of the nearest public curve for this run at a step."""
    dataset, vocabulary = reading.settings.get("dataset"), reading.vocab_size
    parameters, per_step = reading.sizes.parameters, reading.speed.tokens_per_step
    tokens = reading.progress.tokens_at(step)
    if dataset is None or vocabulary is None or parameters is None or per_step is None or not tokens:
        return None
    if not reading.starts_from_scratch:
        return None
    shape, fractions = reading.sizes.shape, lr_fractions(reading, np.array([step]))
    return expected_loss(
        dataset=str(dataset.value),
        parameters=int(parameters.number),
        tokens=tokens,
        vocab_size=int(vocabulary.number),
        unique_tokens=reading.settings.number("train_tokens"),
        tokens_per_step=per_step.number,
        recipe=recipe,
        block_size=reading.settings.integer("block_size"),
        non_embedding=shape.count_parameters().non_embedding if shape is not None else None,
        lr_fraction=float(fractions[0]) if fractions is not None else None,
    )


def reference_curve(reading: Reading) -> list[tuple[int, LossBand]]:
    """The band along the run, at steps that grow evenly; only those where something comparable is known."""
    last = reading.progress.last_step
    if last is None or last.number < 1:
        return []
    steps = np.unique(np.linspace(last.number / CURVE_POINTS, last.number, CURVE_POINTS).astype(np.int64))
    recipe = recipe_of(reading)
    bands = [(int(step), reference_band(reading, int(step), recipe)) for step in steps]
    return [(step, band) for step, band in bands if band is not None]

"""Which learning rate goes with a batch, by what is published for a model of that size.

From 60M parameters on it is GPT-3's table: 6e-4 at width 768 for half a million tokens a step; larger widths
take proportionally less. That table begins at 125M. Small models take higher rates for smaller batches: what
was fitted on runs from 1e17 FLOP on is a rate of 0.3118·C^-0.125 for 0.2920·C^0.3271 tokens a step in one of
C FLOP (DeepSeek LLM, arXiv 2401.02954; at 8.4e22 it gives the 4.2e-4 and the 9.2M tokens with which its 7B
model was trained). Between batches the rate goes with the square root. Fine-tuning and character models are
left out: nothing comparable is known for them.
"""

import math
from dataclasses import dataclass

from gptwright.arithmetic.scaling import GPT3_BATCH, GPT3_RATE, GPT3_WIDTH, best_batch
from gptwright.diagnose.reading import SMALLEST_BPE, Reading
from gptwright.diagnose.sizes import usual_shape
from gptwright.facts import Fact, Origin, derived, tabled

# Half of the smallest model in GPT-3's table.
SMALL_MODEL = 60e6


@dataclass(frozen=True, slots=True)
class Meant:
    """A rate and the batch that it is meant for.

    Attributes:
        rate: of the reference.
        tokens_per_step: of the reference.
        model: whose they are, as words behind the rate.
        source: where the rate is published.
        fitting: the rate for this run's own batch.
    """

    rate: float
    tokens_per_step: float
    model: str
    source: Fact
    fitting: Fact


def meant_rate(reading: Reading) -> Meant | None:
    """What is meant for a run; None where nothing is published: fine-tuning, character models, a width or a
    batch that is not known.
    """
    per_step, vocabulary = reading.speed.tokens_per_step, reading.vocab_size
    if per_step is None or not reading.starts_from_scratch:
        return None
    if vocabulary is None or vocabulary.origin is Origin.ASSUMED or vocabulary.number < SMALLEST_BPE:
        return None
    return _of_a_small_model(reading, per_step) or _of_the_table(reading, per_step)


def _of_a_small_model(reading: Reading, per_step: Fact) -> Meant | None:
    parameters, tokens = reading.sizes.parameters, _length(reading)
    if parameters is None or parameters.number >= SMALL_MODEL or tokens is None:
        return None
    flops = 6 * parameters.number * tokens.number
    rate, batch = 0.3118 * flops**-0.125, 0.2920 * flops**0.3271
    fitting = rate * math.sqrt(per_step.number / batch)
    return Meant(
        rate,
        batch,
        f"in a run of {flops:.0e} FLOP",
        tabled("reference_rate", rate, "DeepSeek LLM", "0.3118·C^-0.125, C = 6·parameters·tokens"),
        derived("fitting_rate", fitting, "0.3118·C^-0.125 · sqrt(tokens_per_step / 0.2920·C^0.3271)"),
    )


def _of_the_table(reading: Reading, per_step: Fact) -> Meant | None:
    width, parameters = reading.settings.integer("n_embd"), reading.sizes.parameters
    if width is None and parameters is not None:
        width = usual_shape(parameters.number, reading.settings).n_embd
    if width is None:
        return None
    tokens, batch = _length(reading), float(GPT3_BATCH)
    if tokens is not None:
        # A run of 2.7B tokens and more has the table's own.
        batch = min(batch, best_batch(tokens.number))
    fitting = GPT3_RATE * min(2.0, GPT3_WIDTH / width) * math.sqrt(per_step.number / batch)
    return Meant(
        GPT3_RATE,
        batch,
        f"at width {GPT3_WIDTH}",
        tabled("reference_rate", GPT3_RATE, "GPT-3", "125M: 6e-4 at 0.5M tokens a step"),
        derived("fitting_rate", fitting, "6e-4 · (768 / n_embd) · sqrt(tokens_per_step / reference batch)"),
    )


def _length(reading: Reading) -> Fact | None:
    length = reading.progress.planned_tokens or reading.progress.tokens_seen
    return length if length is not None and length.number else None

"""Whether the published scaling laws say anything about this run.

They were fitted to web text over a vocabulary of tens of thousands and to models of tens of millions of
parameters and more. Characters, children's stories and source code have other losses altogether: the law's
terms for them can exceed the whole loss that the run has.
"""

from gptwright.arithmetic.scaling import BESIROGLU
from gptwright.diagnose.reading import SMALLEST_BPE, Reading

# Public runs over web text end 0.1 to 0.4 nats above the law (docs/scaling.md), unfinished ones up to a nat,
# speedruns up to 0.5 below it; a loss outside of that is one over other text.
BELOW_LAW, ABOVE_LAW = 0.7, 1.5
# Sizes and lengths for which differences of the laws were held against public runs (docs/scaling.md).
SIZES = (1.2e7, 1.3e9)


def like_web_text(reading: Reading) -> bool:
    """Whether vocabulary and loss are those of web text; without a loss the vocabulary alone decides."""
    vocabulary = reading.vocab_size
    if vocabulary is not None and vocabulary.number < SMALLEST_BPE:
        return False
    parameters, tokens = reading.sizes.parameters, reading.progress.tokens_seen
    if reading.log is None or parameters is None or tokens is None or not tokens.number:
        return True
    from gptwright.diagnose.series import train_loss, val_loss  # with numpy, which a plan has no use for

    curve = next((series for series in (val_loss(reading), train_loss(reading)) if len(series)), None)
    if curve is None:
        return True
    per_step = tokens.number / max(1, reading.progress.last_step.number if reading.progress.last_step else 1)
    expected = BESIROGLU.loss(parameters.number, max(1.0, float(curve.step[-1]) * per_step))
    return -BELOW_LAW <= float(curve.value[-1]) - expected <= ABOVE_LAW


def laws_hold(reading: Reading) -> bool:
    """Whether differences of the laws may be promised for this run, in nats."""
    parameters, vocabulary = reading.sizes.parameters, reading.vocab_size
    if parameters is None or vocabulary is None or not SIZES[0] <= parameters.number <= SIZES[1]:
        return False
    return like_web_text(reading)

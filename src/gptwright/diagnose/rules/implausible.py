"""Losses that no text has: below what is left to guess in anything that people write, or below nothing."""

import math
from collections.abc import Iterator

import numpy as np

from gptwright.diagnose.evaluation import training_loss
from gptwright.diagnose.reading import SMALLEST_BPE, Reading
from gptwright.diagnose.rule import Rule, Verdict, finding, fires
from gptwright.diagnose.rules.references import below_reference
from gptwright.diagnose.scale import (
    ABOVE_UNIFORM,
    LARGEST_VOCABULARY,
    called_fresh,
    loss_scale,
    uniform_loss,
)
from gptwright.diagnose.series import Series, train_loss, val_loss
from gptwright.facts import derived
from gptwright.findings import Action, Cause, Confidence, Finding, Severity, Unknown
from gptwright.record.evidence import OF_REWARDS

# English is guessed by the best models to some 0.4 nats a character; source code, the most predictable text
# that is trained on, to some 0.5 nats a token.
NO_TEXT, NO_TEXT_IN_TOKENS = 0.1, 0.3
# Where training stays this far above, the model itself does not guess so well.
FAR_BELOW_TRAINING = 1.0
ONE_PASS = 1.0
SEES_ITSELF = "a token sees its own target: targets that are not shifted, or attention without a causal mask"
# One batch that is trained on again and again loses a third of its loss an update at best: from a nat to a
# hundredth of it takes ten and more.
AT_ONCE, FROM, TO, FEWEST_LINES = 5, 1.0, 0.01, 3
# Fresh weights over the 65 characters of a small text begin at 4.2, over more they begin higher.
LEAST_FRESH = 3.5


def implausible_loss(reading: Reading) -> Iterator[Verdict]:
    """A loss over text that the model has not seen has what is left to guess in it: at least 0.4 nats a
    character and 0.5 nats a token in all that is published, at any size. Validation under a quarter of that
    (0.1 nats; 0.3 where the vocabulary is known to be of tokens) is therefore no loss over new text of that
    kind, whatever the dataset. Where the first losses say that the weights came from elsewhere, the targets
    may be answers alone, which can be that predictable: there it stays a question. What it is instead the log
    does not say, so causes are named and none is claimed; how often the text was passed over, and whether
    training is as low, puts them in order. A text of one's own making, such as sums or copies, may really be
    that predictable. A training loss that is 0 from the first line on, or all but 0 from one update to the
    next, was learned by nothing. A cross-entropy below 0 does not exist, and a loss that stays above what
    guessing gives over the largest vocabulary is none either. Sources: Shannon 1951 and language models
    since, which guess English to 0.6 bits a character at best; public losses of code and story models; OLMo
    issue 692.
    """
    if reading.log is not None and reading.log.hazards.get(OF_REWARDS):
        yield Unknown(
            "What do the losses beside rewards say?",
            "a loss of text: that of reinforcement or of preferences is no cross-entropy, may be 0 or below,"
            " and does not tell how well the model learns; the rewards do",
        )
    lines = train_loss(reading)
    for curve, word in ((val_loss(reading), "Validation"), (lines, "The training loss")):
        best = curve.best
        if best is not None and curve.value[best] < 0:
            yield _negative(reading, curve, best, word)
            return
    wrong = _above_any_guess(reading) or _of_nothing(reading, lines)
    if wrong is not None:
        yield wrong
        return
    yield from _validation_of_no_text(reading)


def _validation_of_no_text(reading: Reading) -> Iterator[Verdict]:
    """What there is to say of a validation below all that text leaves to guess."""
    val = val_loss(reading).after(0)
    best = val.best
    if best is None or fires(below_reference, reading):
        return
    vocabulary = reading.vocab_size
    of_tokens = vocabulary is not None and vocabulary.number >= SMALLEST_BPE
    limit = NO_TEXT_IN_TOKENS if of_tokens else NO_TEXT
    if val.value[best] >= limit:
        return
    train, unit = training_loss(reading), "token" if of_tokens else "token or character"
    if _may_be_of_answers_alone(reading):
        yield Unknown(
            f"Is a validation loss of {val.value[best]:.4f} one over text that the model had not seen?",
            "whether the loss is over whole texts or over answers alone, with all other targets masked: no"
            f" text is guessed to under {limit} nats a {unit}, but answers that follow from the question"
            " are; and whether validation examples are also among those trained on",
        )
        return
    yield finding(
        "implausible-loss",
        Severity.WARNING,
        Confidence.LIKELY,
        f"Validation is {val.value[best]:.4f} at {reading.at(int(val.step[best]))}: no text that people write"
        f" is guessed to under {limit} nats a {unit} by a model that has not seen it. Which of the causes it"
        " has the log does not say.",
        [
            val.fact(best),
            train.fact(len(train) - 1) if len(train) else None,
            vocabulary if of_tokens else None,
            reading.progress.epochs,
        ],
        causes=_causes(reading, train, float(val.value[best])),
        actions=[
            Action(
                "Evaluate on text that was written after the corpus, and print a batch of inputs beside its"
                " targets: each target is the input one place on, and none of them is padding."
            )
        ],
    )


def _may_be_of_answers_alone(reading: Reading) -> bool:
    """Whether it looks like fine-tuning: nobody calls the weights fresh, and the first losses are not."""
    if called_fresh(reading):
        return False
    lines = train_loss(reading)
    return not len(lines) or float(lines.value[0]) < LEAST_FRESH


def _above_any_guess(reading: Reading) -> Finding | None:
    """The finding of losses that all lie above guessing over the largest vocabulary, and that nothing else
    explains.
    """
    lines, val = train_loss(reading), val_loss(reading)
    curve, word = (lines, "The training loss") if len(lines) else (val, "Validation")
    best, guess = curve.best, math.log(LARGEST_VOCABULARY)
    if best is None or curve.value[best] <= guess + ABOVE_UNIFORM or uniform_loss(reading) is not None:
        return None
    if loss_scale(reading) > 1 or (len(val) and val.value.min() <= guess):
        return None
    last = len(curve) - 1
    return finding(
        "implausible-loss",
        Severity.WARNING,
        Confidence.LIKELY,
        f"{word} is {curve.value[last]:.4f} at {reading.at(int(curve.step[last]))} and never below"
        f" {curve.value[best]:.4f}: guessing gives {guess:.2f} = ln({LARGEST_VOCABULARY:,}) nats a token over"
        " the largest vocabularies in use, so this is no loss in nats a token.",
        [curve.fact(best), curve.fact(last), derived("uniform_loss", guess, f"ln({LARGEST_VOCABULARY:,})")],
        causes=[
            Cause("it is a sum over micro-batches, processes or the tokens of a text", Confidence.POSSIBLE),
            Cause("it is a perplexity: its logarithm is the loss", Confidence.POSSIBLE),
            Cause("other terms are part of it", Confidence.POSSIBLE),
        ],
        actions=[Action("Log the mean over tokens, as cross_entropy with reduction='mean' gives it.")],
    )


def _of_nothing(reading: Reading, lines: Series) -> Finding | None:
    """The finding of training losses near 0 that no update can have brought there."""
    high = np.flatnonzero(lines.value > TO)
    first = int(high[-1]) + 1 if len(high) else 0
    if len(lines) - first < FEWEST_LINES:
        return None
    evidence = [lines.fact(first), lines.fact(len(lines) - 1)]
    if first:
        soon = lines.step[first] - lines.step[first - 1] <= AT_ONCE and reading.steps_are_known
        if not soon or lines.value[first - 1] < FROM:
            return None
        evidence.insert(0, lines.fact(first - 1))
        told = (
            f"falls from {lines.value[first - 1]:.4f} at {reading.at(int(lines.step[first - 1]))} to"
            f" {lines.value[first]:.4f} at {reading.at(int(lines.step[first]))} and stays there: so few"
            " updates teach no text"
        )
    elif lines.value.any():
        return None
    else:
        told = f"is 0 in all {len(lines)} lines: no text is guessed without an error"
    return finding(
        "implausible-loss",
        Severity.WARNING,
        Confidence.LIKELY,
        f"The training loss {told}. Which of the causes it has the log does not say.",
        evidence,
        causes=[
            Cause(
                "all targets are masked or padding, so that there is nothing to guess", Confidence.POSSIBLE
            ),
            Cause(
                SEES_ITSELF,
                Confidence.POSSIBLE,
            ),
            Cause("the loss is no number and is logged as 0", Confidence.POSSIBLE),
        ],
        actions=[Action("Print a batch of inputs beside its targets, and the loss of each token.")],
    )


def _causes(reading: Reading, train: Series, lowest: float) -> list[Cause]:
    known = "validation text is also in the training data, and is known by heart"
    counted = "most targets are padding or masked, so that few are really guessed"
    simple = "the text is made by a rule or repeats itself"
    order = [known, SEES_ITSELF, counted, simple]
    epochs = reading.progress.epochs
    if len(train) and train.value[-1] > lowest + FAR_BELOW_TRAINING:
        order = [counted, known, simple]
    elif epochs is not None and epochs.number < ONE_PASS:
        order = [SEES_ITSELF, counted, simple, known]
    return [Cause(text, Confidence.POSSIBLE) for text in order]


def _negative(reading: Reading, curve: Series, row: int, word: str) -> Finding:
    return finding(
        "implausible-loss",
        Severity.ERROR,
        Confidence.CERTAIN,
        f"{word} is {curve.value[row]:.4f} at {reading.at(int(curve.step[row]))}: a cross-entropy is never"
        " below 0.",
        [curve.fact(row), derived("least_loss", 0.0, "of a target that is certain", unit="nats")],
        causes=[
            Cause(
                "the loss is given probabilities or logits where it takes the logarithm", Confidence.POSSIBLE
            ),
            Cause("another term, such as a reward or a difference, is part of it", Confidence.POSSIBLE),
        ],
        actions=[Action("Compute it with torch.nn.functional.cross_entropy on logits.")],
    )


RULES = (Rule("implausible-loss", implausible_loss),)

"""The loss against that of guessing: where it starts, and where validation is worse than guessing."""

import math
from collections.abc import Iterator

from gptwright.diagnose.evaluation import training_rise, turning_point
from gptwright.diagnose.reading import Reading
from gptwright.diagnose.rule import Rule, Verdict, finding
from gptwright.diagnose.scale import (
    ABOVE_UNIFORM,
    FAR_ABOVE_UNIFORM,
    MULTIPLE_TOLERANCE,
    called_fresh,
    first_loss,
    first_train_loss,
    loss_scale,
    other_unit,
    other_vocabulary,
    uniform_loss,
)
from gptwright.diagnose.series import eval_train_loss, train_loss, val_loss
from gptwright.facts import Fact, logged
from gptwright.findings import Action, Cause, Confidence, Severity

# A multiple that is met within 2 % needs no "about".
CLOSE = 0.02
# Far below ln(vocabulary), where one micro-batch scatters by 0.2.
BELOW_UNIFORM = 0.35
# Token frequencies alone, which a model learns in its first steps, are at two thirds of ln(vocabulary).
KNOWS_A_LANGUAGE = 0.66
# What turns another unit into nats.
IN_NATS = {"perplexity": "its logarithm is the loss", "bits": "times 0.693 it is the loss"}


def scaled_loss(reading: Reading) -> Iterator[Verdict]:
    """Fresh weights guess almost uniformly, so the first loss is ln(vocabulary). A first loss of a whole
    multiple of it, two or more, is a sum over micro-batches or processes that was not divided; it is certain
    where the multiple is the accumulation. Validation is computed elsewhere and stays right, so a validation
    far below training is then an artefact. Sources: transformers issues 35204 and 37766.
    """
    multiple, first, train = loss_scale(reading), first_train_loss(reading), reading.train
    uniform = uniform_loss(reading) if reading.starts_from_scratch else None
    if multiple == 1 or train is None:
        return
    first = first or logged("first_loss", float(train.loss[0]), int(train.line[0]), unit="nats")
    accumulation = reading.settings.get("gradient_accumulation_steps")
    same = accumulation is not None and accumulation.value == multiple
    val = val_loss(reading)
    told = _multiple_of_guessing(multiple, first, uniform)
    if not reading.starts_from_scratch:
        told = f"about {multiple} times validation beside it, and {multiple} micro-batches are accumulated"
    summed = "accumulated micro-batches"
    if accumulation is not None and not same:
        summed = (
            f"{multiple} devices" if multiple == reading.machine.count else "micro-batches, or of devices,"
        )
    yield finding(
        "scaled-loss",
        Severity.WARNING,
        Confidence.CERTAIN
        if same and uniform is not None and reading.starts_from_scratch
        else Confidence.LIKELY,
        f"The first training loss of {first.text} is {told}: the"
        f" logged loss is {multiple} times the true one. Divide it before comparing; validation is not"
        " affected.",
        [first, uniform, accumulation, val.fact(len(val) - 1) if len(val) else None],
        causes=[Cause(f"the losses of the {summed} are summed and not averaged", Confidence.LIKELY)],
        actions=[
            Action(
                "Update transformers; later releases divide. The training itself is sound."
                if reading.log is not None and reading.log.format.name == "Hugging Face Trainer"
                else f"Print the mean. If {multiple} times the loss is what is differentiated too, every"
                " gradient is as many times too large: clipping then cuts each of them."
            )
        ],
    )


def _multiple_of_guessing(multiple: int, first: Fact, uniform: Fact | None) -> str:
    if uniform is None:
        return f"more than guessing gives over any vocabulary, and {multiple} × {first.number / multiple:.2f}"
    about = "" if abs(first.number / (multiple * uniform.number) - 1) < CLOSE else "about "
    return f"{about}{multiple} × {uniform.text} = {multiple} × {uniform.reason}"


def init_loss(reading: Reading) -> Iterator[Verdict]:
    """The first loss of fresh weights must be near ln(vocabulary): above it by up to 0.2 with GPT-2's
    initialization and 0.2 of scatter, never clearly below. Far above: the initialization or the targets are
    wrong. Far below: the weights are not fresh, or the vocabulary is smaller than thought; nothing that a
    model sees helps it before its first update. It needs a log from step 0 or 1, a known vocabulary, and
    nothing that says the weights came from elsewhere; where nobody calls them fresh either, it is no fault. A
    whole multiple is scaled-loss instead. Source: arithmetic, and first losses of public logs (10.77 to 11.06
    over 50,304 tokens, 4.26 to 4.29 over 65).
    """
    first, uniform = first_loss(reading), uniform_loss(reading)
    if first is None or uniform is None or loss_scale(reading) > 1:
        return
    excess = first.number - uniform.number
    if -BELOW_UNIFORM <= excess <= ABOVE_UNIFORM:
        return
    above = excess > 0
    # Nobody called these weights fresh: that they are not is the reading, and no fault.
    from_elsewhere = not above and not called_fresh(reading)
    if above:
        unit = other_unit(reading)
        causes = [
            *(
                [Cause(f"it is printed as {unit}, not in nats: {IN_NATS[unit]}", Confidence.LIKELY)]
                if unit
                else []
            ),
            Cause(
                "weights are initialized too large, or the output layer is",
                Confidence.POSSIBLE if unit else Confidence.LIKELY,
            ),
            Cause("targets do not belong to the inputs", Confidence.POSSIBLE),
        ]
        other = other_vocabulary(reading)
        if other is not None and unit is None:
            text = f"the vocabulary is another: that loss is ln of some {math.exp(first.number):,.0f} tokens"
            causes.insert(0, Cause(f"{text}, as {other} would give", Confidence.LIKELY))
    else:
        causes = [
            Cause("the vocabulary in use is smaller than the model's", Confidence.POSSIBLE),
            Cause("the line is a mean over steps that learned already", Confidence.POSSIBLE),
        ]
        # Weights that know a language at all are far below guessing.
        if first.number < KNOWS_A_LANGUAGE * uniform.number:
            text = "the weights are pretrained or resumed"
            causes.insert(0, Cause(text, Confidence.LIKELY if from_elsewhere else Confidence.POSSIBLE))
        divided = _divided_by(reading, first, uniform)
        if divided is not None:
            causes.insert(
                0, Cause(f"it is printed divided by the accumulation of {divided}", Confidence.LIKELY)
            )
    yield finding(
        "init-loss",
        Severity.INFO if from_elsewhere else Severity.WARNING,
        Confidence.LIKELY,
        f"The first loss is {first.text}; fresh weights over {reading.settings.facts('vocab_size')[0].text}"
        f" tokens give {uniform.text} = {uniform.reason}.",
        [first, uniform, *reading.settings.facts("vocab_size", "init_from")],
        causes=causes,
    )


def _divided_by(reading: Reading, first: Fact, uniform: Fact) -> int | None:
    """The accumulation, where the first loss is that of fresh weights divided by it."""
    accumulation = reading.settings.integer("gradient_accumulation_steps")
    if accumulation is None or accumulation < 2 or first.number <= 0:
        return None
    ratio = uniform.number / first.number / accumulation
    return accumulation if abs(ratio - 1) <= MULTIPLE_TOLERANCE else None


def worse_than_uniform(reading: Reading) -> Iterator[Verdict]:
    """A validation loss above ln(vocabulary) is worse than guessing: the model is sure of the wrong tokens.
    At the start every model is slightly above it, so evaluations count only once training loss has fallen
    well below. Where both are a third above it, they are no losses in nats: a perplexity, or a sum. Source:
    arithmetic.
    """
    val, uniform, train = val_loss(reading), uniform_loss(reading), eval_train_loss(reading)
    if uniform is None or not len(val) or val.step[-1] < 2:
        return
    last = val.value[-1]
    trained = train if len(train) else train_loss(reading)
    if last <= uniform.number + 0.05 or not len(trained):
        return
    no_loss = trained.value[-1] > FAR_ABOVE_UNIFORM * uniform.number < last / FAR_ABOVE_UNIFORM
    if not no_loss and trained.value[-1] > uniform.number - 0.5:
        return
    if no_loss and training_rise(reading) is not None:
        return
    # Memorizing takes a loss somewhat above that of guessing; that far, the number is most often no loss.
    perplexity = Cause(f"it is a perplexity, of a loss of {math.log(last):.2f}", Confidence.LIKELY)
    may_be = last > FAR_ABOVE_UNIFORM * uniform.number and math.log(last) < uniform.number
    beside = ", and so is training: this is no loss in nats" if no_loss else ""
    yield finding(
        "worse-than-uniform",
        Severity.WARNING if no_loss else Severity.ERROR,
        Confidence.CERTAIN,
        f"Validation is {last:.4f} at {reading.at(int(val.step[-1]))}, above {uniform.text} ="
        f" {uniform.reason}, which guessing gives{beside}.",
        [val.fact(len(val) - 1), uniform, trained.fact(len(trained) - 1)],
        causes=[
            perplexity,
            Cause("it is a sum over micro-batches or processes", Confidence.POSSIBLE),
        ]
        if no_loss
        else [
            *([perplexity] if may_be else []),
            Cause(
                "the model has memorized the training text",
                Confidence.LIKELY if turning_point(reading) is not None else Confidence.POSSIBLE,
            ),
            Cause("validation was tokenized differently, or the loss is summed", Confidence.POSSIBLE),
        ],
    )


RULES = (
    Rule("scaled-loss", scaled_loss),
    Rule("init-loss", init_loss),
    Rule("worse-than-uniform", worse_than_uniform),
)

"""Whether validation has turned while training goes on falling, and what is missing where nothing tells."""

import math
from collections.abc import Iterator

import numpy as np

from gptwright.arithmetic.trend import overfit_point
from gptwright.diagnose.evaluation import (
    standard_error,
    swing_of,
    training_loss,
    turning_point,
)
from gptwright.diagnose.reading import Reading
from gptwright.diagnose.rule import Rule, Verdict, finding
from gptwright.diagnose.scale import loss_scale
from gptwright.diagnose.series import Series, eval_train_loss, train_loss, val_curve, val_loss
from gptwright.findings import Action, Cause, Confidence, Severity, Unknown
from gptwright.record.evidence import OF_CHARACTERS, UNNAMED

# A swing goes up by twice its amplitude; a rise of twice that is not its work.
RISE_OVER_SWING = 4
# Random windows have seen 63 % of the text after as many tokens as it has: below that, hardly any twice.
ONE_PASS = 0.9
# A gap between two losses that are evaluated alike which no split explains, and how far both have to move.
MEMORIZED_GAP, RISE_BESIDE_IT = 1.0, 0.1
# Evaluations that rise one after the other, and by how much, where nothing tells how they scatter.
FEWEST_RISING, RISE = 3, 0.03
# What nanoGPT's recipe for a megabyte of text uses.
USUAL_DROPOUT = 0.2


def overfitting(reading: Reading) -> Iterator[Verdict]:
    """Validation rose from its best, beyond the noise of the evaluations and of choosing the best of many,
    while training loss went on falling. A gap between the two that does not grow is no overfitting, and
    neither is a validation that scatters, swings with the data's order, or rises before the text was seen
    once. Sources: nanoGPT issues 211 and 493 (Shakespeare characters turn at
    about step 1,750 of nanoGPT's recipe).
    """
    point = turning_point(reading)
    if point is None:
        yield from _memorized(reading)
        return
    if not point.train_falls:
        return
    val, train = val_curve(reading), training_loss(reading)
    swing = swing_of(val)
    if swing is not None and point.rise < RISE_OVER_SWING * swing.amplitude:
        return
    seen = reading.progress.epochs
    if seen is not None and seen.number < ONE_PASS and reading.starts_from_scratch:
        yield Unknown(
            f"Why does validation rise after {reading.at(point.best_step)}?",
            f"the order of the data, or another split: {seen.text} passes are too few to memorize anything",
        )
        return
    best = int(np.searchsorted(val.step, point.best_step))
    last = len(val) - 1
    if val.step[best] < 1 and reading.steps_are_known:
        yield _never_fell(reading, val, train)
        return
    epochs = _epochs_at(reading, point.best_step)
    passes = f" ({epochs:.1f} passes over the data)" if epochs is not None else ""
    yield finding(
        "overfitting",
        Severity.WARNING,
        Confidence.CERTAIN if len(eval_train_loss(reading)) else Confidence.LIKELY,
        f"Validation was best at {reading.at(point.best_step)}{passes} with {val.value[best]:.4f} and is"
        f" {val.value[last]:.4f} at {reading.at(int(val.step[last]))}, while training loss fell to"
        f" {_of_training(reading, train)}. The later steps memorized.",
        [val.fact(best), val.fact(last), train.fact(len(train) - 1), reading.progress.epochs],
        causes=[Cause("the data was passed over too often for a model of this size", Confidence.LIKELY)],
        actions=[_stop_at(reading, point.best_step), _against_memorizing(reading)],
    )


def _of_training(reading: Reading, train: Series) -> str:
    """The last training loss, with what it really is where the log has a multiple of it."""
    last, multiple = float(train.value[-1]), loss_scale(reading)
    return f"{last:.4f}" if multiple == 1 else f"{last / multiple:.4f}, logged as {last:.4f}"


def _never_fell(reading: Reading, val: Series, train: Series) -> Verdict:
    """The finding of a validation that rose from fresh weights on: memorizing alone does not do that."""
    last = len(val) - 1
    return finding(
        "overfitting",
        Severity.WARNING,
        Confidence.POSSIBLE,
        f"Validation rose from the start, {val.value[0]:.4f} at {reading.at(int(val.step[0]))}, to"
        f" {val.value[last]:.4f} at {reading.at(int(val.step[last]))}, while training loss fell to"
        f" {train.value[-1]:.4f}. Text of the same kind gets easier first,"
        " also for a model that then memorizes.",
        [val.fact(0), val.fact(last), train.fact(len(train) - 1), reading.progress.epochs],
        causes=[
            Cause(
                "validation is other text than training, or is tokenized or masked in another way",
                Confidence.LIKELY,
            ),
            Cause(
                "so little text that the first evaluation behind the start came too late", Confidence.POSSIBLE
            ),
        ],
        actions=[_stop_at(reading, 0)],
    )


def _memorized(reading: Reading) -> Iterator[Verdict]:
    """Two or three evaluations, far above training: what a fine-tune on a small text looks like."""
    val, train = val_curve(reading), eval_train_loss(reading)
    if not 2 <= len(val) < 4 or len(train) != len(val) or val.name != "val_loss" or loss_scale(reading) > 1:
        return
    gap, rise, fall = (
        float(val.value[-1] - train.value[-1]),
        float(val.value[-1] - val.value[0]),
        float(train.value[0] - train.value[-1]),
    )
    if gap < MEMORIZED_GAP or rise < RISE_BESIDE_IT or fall < RISE_BESIDE_IT or val.step[0] < 1:
        return
    best = int(val.value.argmin())
    last = len(val) - 1
    yield finding(
        "overfitting",
        Severity.WARNING,
        Confidence.LIKELY,
        f"Validation is {val.value[last]:.4f} and training {train.value[last]:.4f} at"
        f" {reading.at(int(val.step[last]))}, both evaluated alike: a gap of {gap:.1f} nats is memorized"
        f" text. Validation rose by {rise:.2f} since {reading.at(int(val.step[0]))} while training fell by"
        f" {fall:.2f}; its best is before the first of these {len(val)} evaluations or at"
        f" {reading.at(int(val.step[best]))}.",
        [val.fact(0), val.fact(last), train.fact(0), train.fact(last)],
        causes=[Cause("the data was passed over too often for a model of this size", Confidence.LIKELY)],
        actions=[
            Action(
                "Evaluate from the start and far more often (eval_interval), and keep the best checkpoint."
            ),
            _against_memorizing(reading),
        ],
    )


def _stop_at(reading: Reading, step: int) -> Action:
    if not reading.steps_are_known:
        return Action("Use the checkpoint that was saved there, or end the run and its schedule there.")
    if step < 1:
        return Action(
            "Validation never fell: see that both splits are the same kind of text, tokenized alike, before"
            " anything else."
        )
    return Action(
        f"Use the checkpoint of step {step:,}, or stop there and let the schedule end there.",
        {"max_iters": step, "lr_decay_iters": step},
    )


def _against_memorizing(reading: Reading) -> Action:
    if reading.log is not None and not reading.log.format.has_dropout:
        name = reading.log.format.name
        return Action(f"More text helps most; then a smaller model. The model of {name} has no dropout.")
    dropout = reading.settings.number("dropout")
    if dropout is not None and dropout >= USUAL_DROPOUT:
        return Action(f"More text helps most; then a smaller model. Dropout is {dropout:g} already.")
    return Action("More text helps most; then dropout or a smaller model.", {"dropout": USUAL_DROPOUT})


def _epochs_at(reading: Reading, step: int) -> float | None:
    tokens, unique = reading.progress.tokens_at(step), reading.settings.get("train_tokens")
    if tokens is None or unique is None or not reading.steps_are_known:
        return None
    return tokens / unique.number


def unexplained_rise(reading: Reading) -> Iterator[Verdict]:
    """Validation that rose from its best beyond the noise, in a log without training losses: whether training
    went on falling, which makes it overfitting, is not known.
    """
    val = val_curve(reading)
    if len(val) < 4 or len(training_loss(reading)):
        return
    error = standard_error(reading) if val.name == "val_loss" else None
    point = overfit_point(val.step, None, val.value, error)
    rises = point is not None and (point.exceeds or _rises_to_the_end(val))
    if point is None or not rises:
        return
    best, last = val.fact(int(np.searchsorted(val.step, point.best_step))), val.fact(len(val) - 1)
    yield Unknown(
        f"Does it overfit from {reading.at(point.best_step)} on?",
        f"the training loss: validation was {best.text} there ({best.reason}) and is {last.text} at"
        f" {reading.at(int(val.step[-1]))} ({last.reason}); only beside a training loss that falls is that"
        " memorizing",
    )


def _rises_to_the_end(val: Series) -> bool:
    """Whether the last evaluations rise from the best one by more than a handful does by chance."""
    best = int(val.value.argmin())
    behind = np.diff(val.value[best:])
    return (
        len(behind) >= FEWEST_RISING and bool((behind > 0).all()) and val.value[-1] - val.value[best] > RISE
    )


def bits_alone(reading: Reading) -> Iterator[Verdict]:
    """Bits a byte compare models across tokenizers; the loss of a token, which references and perplexities
    are of, follows from them only with the bytes that a token has on this text.
    """
    val = val_curve(reading)
    if not len(val) or val.name != "val_bpb":
        return
    last = val.fact(len(val) - 1)
    yield Unknown(
        "What is the validation loss in nats a token?",
        f"how many bytes of this text a token has: validation is printed in bits a byte alone ({last.text} at"
        f" {reading.at(int(val.step[-1]))}, {last.reason}); times 0.693 and those bytes it is the loss",
    )


def _gap_of_one(reading: Reading) -> Unknown | None:
    """What is missing where a single evaluation shows memorized text: how low validation was before."""
    val, train = val_loss(reading), eval_train_loss(reading)
    if len(val) != 1 or len(train) != 1 or loss_scale(reading) > 1:
        return None
    gap = float(val.value[0] - train.value[0])
    if gap < MEMORIZED_GAP:
        return None
    before, beside = val.fact(0), train.fact(0)
    return Unknown(
        "Was validation lower before?",
        f"the evaluations before {reading.at(int(val.step[0]))}: validation is {before.text} there and"
        f" training {beside.text} ({before.reason}), both evaluated alike, and a gap of {gap:.1f} nats is"
        " memorized text; from when on validation rose, one evaluation does not say",
    )


def bits_of_characters(reading: Reading) -> Iterator[Verdict]:
    """Bits a character, times 0.693, are the loss of a model whose tokens are characters; of any other a
    token has several, and how many decides what its loss is.
    """
    log, curve = reading.log, val_curve(reading)
    curve = curve if len(curve) else train_loss(reading)
    if log is None or not log.hazards.get(OF_CHARACTERS) or not len(curve):
        return
    if reading.vocab_size is not None:
        return
    last = curve.fact(len(curve) - 1)
    yield Unknown(
        "What is the loss in nats a token?",
        "whether a token is a character (--vocab-size), else how many it has: losses are printed in bits a"
        f" character ({last.number / math.log(2):.4f} at {reading.at(int(curve.step[-1]))}, line"
        f" {curve.line[-1]} of the log); times 0.693 they are nats a character, as they are given here",
    )


def no_validation(reading: Reading) -> Iterator[Verdict]:
    """Without evaluations, or with fewer than four, nothing can be said about a turn of validation: the
    question stays open, with what would answer it.
    """
    log = reading.log
    if log is None or not len(log.train) or log.hazards.get(UNNAMED):
        return
    if not len(val_curve(reading)) and len(log.evals) and log.evals.loss_is_bad.all():
        yield Unknown("Does it generalize?", "a validation loss that is a number: the log has none")
    elif not len(val_curve(reading)):
        yield Unknown(
            "Does it generalize?",
            "a validation loss: the log has none. Set eval_interval below the run's length",
        )
    elif (gap := _gap_of_one(reading)) is not None:
        yield gap
    elif len(val_curve(reading)) < 4 and len(log.train) > 20:
        yield Unknown("Has validation turned?", "more evaluations: the log has fewer than four")


RULES = (
    Rule("overfitting", overfitting),
    Rule("overfitting", unexplained_rise),
    Rule("overfitting", no_validation),
    Rule("overfitting", bits_alone),
    Rule("overfitting", bits_of_characters),
)

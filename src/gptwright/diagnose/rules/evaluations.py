"""What separates evaluations from lines and from each other: dropout, the split, the noise of a loss."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from gptwright.arithmetic.evaluation import FEWEST_WINDOWS, UNSURE_SPLIT
from gptwright.arithmetic.quantiles import student_quantile
from gptwright.arithmetic.trend import noise_of, offset_between
from gptwright.diagnose.evaluation import (
    CONTIGUOUS,
    error_by_design,
    printed_error,
    swing_of,
    turning_point,
)
from gptwright.diagnose.reading import Reading
from gptwright.diagnose.rule import Rule, Verdict, finding
from gptwright.diagnose.scale import loss_scale
from gptwright.diagnose.series import eval_train_loss, train_loss, val_curve, val_loss
from gptwright.facts import Fact, derived
from gptwright.findings import Action, Cause, Confidence, Severity, Unknown
from gptwright.record.evidence import TrainLoss

# Two printed losses with this standard error differ by 2·√2 times it, 0.06 nats, for no reason.
NOISY_EVALUATION, VERY_NOISY_EVALUATION = 0.02, 0.05
# What a training line holds, in the words of an answer.
WHAT_LINES_ARE = {
    TrainLoss.MICRO_BATCH: "one micro-batch",
    TrainLoss.STEP: "one step's batch",
    TrainLoss.INTERVAL: "the steps since the line before",
    TrainLoss.SMOOTHED: "a running average",
    TrainLoss.NOT_SAID: "a batch or a mean, which nothing says",
    TrainLoss.ABSENT: "nothing that is logged",
}
FEWEST_BELOW = 3
# A gap that is smaller does not matter to anybody, however sure it is.
SMALL_GAP = 0.01
# A gap that people ask about, and how many passes leave nothing memorized.
WORTH_A_WORD, FEW_PASSES = 0.05, 2.0


def dropout_in_train_loss(reading: Reading) -> Iterator[Verdict]:
    """Per-step losses are taken in training mode, with dropout on; the losses of an evaluation are taken in
    eval mode for both splits. Dropout can therefore lift the per-step line above the evaluated training loss,
    and it can never explain a gap between the two evaluated ones. It fires where dropout is set and the lines
    lie above by three standard errors; where dropout is 0 or unknown, or the trainer's model has none, it is
    silent. Source: nanoGPT's estimate_loss, which calls model.eval() for both splits; public logs of a 40M
    run (+0.0925 at dropout 0.1) and of a 124M run on the same data (−0.006 at dropout 0).
    """
    dropout, evaluated, lines = reading.settings.get("dropout"), eval_train_loss(reading), train_loss(reading)
    if (
        dropout is None
        or not dropout.number
        or (reading.log is not None and not reading.log.format.has_dropout)
        or len(evaluated) < 4
        or len(lines) < 10
        or loss_scale(reading) > 1
    ):
        return
    offset = offset_between(lines.step, lines.value, evaluated.step, evaluated.value)
    if offset is None or offset.mean < 3 * offset.standard_error or offset.mean < SMALL_GAP:
        return
    yield finding(
        "dropout-in-train-loss",
        Severity.INFO,
        Confidence.CERTAIN,
        f"The per-step loss lies {offset.mean:.3f} ± {offset.standard_error:.3f} above the evaluated training"
        f" loss because dropout of {dropout.number:g} is on there. It is off in both evaluated losses, so it"
        " explains no gap between them.",
        [
            dropout,
            lines.fact(len(lines) - 1),
            evaluated.fact(len(evaluated) - 1),
            derived("offset", offset.mean, f"mean over {offset.n} lines", unit="nats"),
        ],
    )


@dataclass(frozen=True, slots=True)
class Gap:
    """Validation less training, both in eval mode, over late evaluations.

    Attributes:
        mean: in nats.
        error: its standard error.
        values: evaluations that it is the mean of.
        evidence: the last of both, and the mean.
    """

    mean: float
    error: float
    values: int
    evidence: tuple[Fact, ...]

    @property
    def is_sure(self) -> bool:
        """Whether it is beyond chance, as in one of a thousand: neighbouring gaps share a split."""
        return abs(self.mean) > student_quantile(self.values - 1, 0.9995) * self.error


def late_gap(reading: Reading) -> Gap | None:
    """The gap over the last two thirds of the evaluations; the steep start says nothing about the splits."""
    log, val, train = reading.log, val_loss(reading), eval_train_loss(reading)
    if log is None or not log.format.evaluates_train or len(train) < 4 or loss_scale(reading) > 1:
        return None
    steps, rows_val, rows_train = np.intersect1d(val.step, train.step, return_indices=True)
    if not len(steps):
        return None
    late = np.flatnonzero(steps >= steps[0] + (steps[-1] - steps[0]) / 3)
    if len(late) < 3:
        return None
    gaps = val.value[rows_val[late]] - train.value[rows_train[late]]
    mean, formula = float(gaps.mean()), f"mean of validation less training over {len(gaps)} evaluations"
    evidence = (
        val.fact(int(rows_val[late[-1]])),
        train.fact(int(rows_train[late[-1]])),
        derived("gap", mean, formula, unit="nats"),
    )
    return Gap(mean, float(gaps.std(ddof=1) / np.sqrt(len(gaps))), len(gaps), evidence)


def val_below_train(reading: Reading) -> Iterator[Verdict]:
    """Both evaluated losses are taken in eval mode, without dropout, so a validation below training is not
    dropout: it says that the validation text is easier, because the split is small, one contiguous stretch,
    or from another source, or that it leaked into training. The gap must hold over the evaluations, beyond
    their scatter. Logs that print only a training-mode loss are not judged. Source: public logs in which the
    gap stayed at −0.04 when dropout went from 0.1 to 0, and had the other sign on another corpus.
    """
    gap = late_gap(reading)
    if gap is None or not gap.is_sure or gap.mean > -SMALL_GAP:
        return
    yield finding(
        "val-below-train",
        Severity.INFO,
        Confidence.CERTAIN,
        f"Validation lies {-gap.mean:.3f} ± {gap.error:.3f} below training over the last {gap.values}"
        " evaluations. Both are taken in eval mode, so dropout has no part in it: the validation text is"
        " easier, or known.",
        [*gap.evidence, *reading.settings.facts("val_tokens", "note")],
        causes=_gap_causes(reading),
        actions=[
            Action(
                "Draw the validation split by document over the whole corpus: gptwright prepare --split hash."
            )
        ],
    )


def val_above_train(reading: Reading) -> Iterator[Verdict]:
    """A validation above training is taken for overfitting at once. In its first two passes over the text a
    model of fewer parameters than tokens has nothing to memorize yet, so the gap says that the texts differ:
    nanoGPT's character data validates on the last tenth of the file, which is harder than the rest. Later
    passes, larger models, fine-tuning and a validation that rises are not spoken of. Source: nanoGPT's run
    for a CPU, whose gap of 0.12 after 1.5 passes shrinks by 0.06 to 0.10 on splits drawn by content
    (docs/scaling.md).
    """
    gap, epochs = late_gap(reading), reading.progress.epochs
    if gap is None or not gap.is_sure or gap.mean < WORTH_A_WORD or epochs is None:
        return
    fed = reading.progress.tokens_per_parameter
    if epochs.number > FEW_PASSES or fed is None or fed.number < 1 or not reading.starts_from_scratch:
        return
    if turning_point(reading) is not None:
        return
    yield finding(
        "val-above-train",
        Severity.INFO,
        Confidence.LIKELY,
        f"Validation lies {gap.mean:.3f} ± {gap.error:.3f} above training after {epochs.text} passes over the"
        " data: too few to memorize it, so this is no overfitting.",
        [*gap.evidence, epochs, fed, *reading.settings.facts("val_tokens")],
        causes=[Cause("the validation text is harder than the training text", Confidence.LIKELY)],
    )


def val_below_training_lines(reading: Reading) -> Iterator[Verdict]:
    """Trainers that evaluate no training text print a training loss of another kind: in training mode, with
    dropout on, often a mean over steps that are past. Validation below it is no fault of a split by itself;
    whether one is behind it cannot be known from such a log, and what would tell is said.
    """
    log, val, lines = reading.log, val_loss(reading), train_loss(reading)
    if log is None or len(eval_train_loss(reading)) or loss_scale(reading) > 1 or len(lines) < 4:
        return
    late = val.after(float(val.step[-1]) / 2) if len(val) else val
    if len(late) < FEWEST_BELOW or late.step[-1] > lines.step[-1]:
        return
    gaps = late.value - lines.value_at(late.step)
    if gaps.max() > -SMALL_GAP:
        return
    why = (
        "its model has no dropout, and the loss of training is that of"
        if not log.format.has_dropout
        else "dropout, if it is on, lifts the loss of training, which is that of"
    )
    yield Unknown(
        f"Why is validation below training, by {-float(gaps.mean()):.2f} nats?",
        f"a loss of training text that is evaluated like validation: {why}"
        f" {WHAT_LINES_ARE[log.format.train_loss]}, taken while the model learns; beside it validation may be"
        " lower without any fault",
    )


def _gap_causes(reading: Reading) -> list[Cause]:
    tokens = reading.settings.get("val_tokens")
    small = tokens is not None and tokens.number < 1e6
    text = (
        f"the validation split has only {tokens.text} tokens" if small and tokens is not None else "the split"
    )
    first = Cause(
        (
            f"{text}: a small or contiguous validation split happens to be easier text"
            if small
            else "the split: validation is from easier text or another source than training"
        ),
        Confidence.LIKELY,
    )
    return [first, Cause("validation documents are also in training (leakage)", Confidence.POSSIBLE)]


def small_val_split(reading: Reading) -> Iterator[Verdict]:
    """A validation split is a sample of the corpus: its own mean is unsure by the scatter of windows over the
    root of their number, and no number of evaluation batches mends that. It fires below 50 windows of the
    context, or where the split's mean is unsure by more than 0.03 nats; a stretch cut from one place is worse
    than its size. It needs the stated size of the split. Source: a public run whose split of 5,600 tokens
    misled every reading of it; per-window scatter from public logs (docs/scaling.md).
    """
    tokens, context = reading.settings.get("val_tokens"), reading.settings.integer("block_size")
    if tokens is None or context is None:
        return
    windows = tokens.number / context
    error = error_by_design(reading)
    unsure = error.of_split if error is not None else None
    if windows >= FEWEST_WINDOWS and (unsure is None or unsure <= UNSURE_SPLIT):
        return
    note = reading.settings.word("note") or ""
    contiguous = (
        " It is one contiguous stretch, so even less independent text." if CONTIGUOUS.search(note) else ""
    )
    sure = (
        f"; its mean is unsure by about {unsure:.2f} nats, whatever eval_iters is"
        if unsure is not None
        else ""
    )
    yield finding(
        "small-val-split",
        Severity.WARNING,
        Confidence.CERTAIN,
        f"The validation split has {tokens.text} tokens, about {windows:.1f} windows of"
        f" {context}{sure}.{contiguous}",
        [
            tokens,
            *reading.settings.facts("block_size", "note"),
            derived("windows", windows, "val_tokens / block_size"),
        ],
        actions=[
            Action("Prepare again with a split of at least a million tokens drawn over the whole corpus.")
        ],
    )


def noisy_eval(reading: Reading) -> Iterator[Verdict]:
    """A printed loss is a mean over eval_iters × batch_size windows and carries their standard error;
    trainers of nanoGPT's kind draw new windows every time, so two printed losses differ by 2·√2 times it for
    no reason; of a trainer that evaluates the same windows every time it is not said. It fires above 0.02
    nats, where differences between recipes (0.01 to 0.05) can no longer be read. The error is taken from the
    log where it is printed, else from the design; the scatter of the printed losses around their trend is
    shown beside it. Source: per-window scatter from public logs (docs/scaling.md).
    """
    val = val_loss(reading)
    error, source = printed_error(reading), "printed"
    if error is None:
        design = error_by_design(reading)
        error, source = (
            (design.of_mean, "by eval_iters × batch_size windows") if design is not None else (None, "")
        )
    same = reading.log is not None and reading.log.format.evaluates_same_windows
    if error is None or same or len(val) < 3 or error <= NOISY_EVALUATION:
        return
    late = val.part(val.step >= val.step[-1] / 2)
    noise = noise_of(late.value, late.step)
    scatter = noise.sd if noise is not None else None
    evidence: list[Fact | None] = [
        *reading.settings.facts("eval_iters", "batch_size", "block_size"),
        derived("standard_error", error, source, unit="nats"),
        val.fact(len(val) - 1),
    ]
    if scatter is not None:
        evidence.append(
            derived("scatter", scatter, f"of {len(late)} validation losses around their trend", unit="nats")
        )
    batches = reading.settings.integer("eval_iters") or 1
    wanted = max(batches + 1, round(batches * (error / 0.01) ** 2))
    yield finding(
        "noisy-eval",
        Severity.WARNING if error > VERY_NOISY_EVALUATION else Severity.INFO,
        Confidence.LIKELY,
        f"Each printed loss is unsure by about {error:.3f} nats, so two of them differ by up to"
        f" {2.8 * error:.2f} by chance; smaller differences between them mean nothing.",
        evidence,
        actions=[Action(f"eval_iters = {wanted} would bring it to 0.01.", {"eval_iters": wanted})],
    )


def periodic_validation(reading: Reading) -> Iterator[Verdict]:
    """Validation that rises and falls with a fixed period has the period of the data: shards or documents are
    read in order and not shuffled. The period must stand out of the noise of all periods that were tried.
    Source: modded-nanogpt issue 174.
    """
    val = val_curve(reading)
    period = swing_of(val)
    if period is None:
        return
    yield finding(
        "periodic-validation",
        Severity.WARNING,
        Confidence.LIKELY,
        f"Validation swings by ±{period.amplitude:.3f} with a period of about {period.steps:,.0f} steps: the"
        " data is read in an order that repeats.",
        [
            val.fact(len(val) - 1),
            derived("period", period.steps, "of validation around its trend", unit="steps"),
        ],
        causes=[Cause("shards or documents are not shuffled", Confidence.LIKELY)],
        actions=[Action("Draw windows from all shards in every step.", {"sampling": "epoch"})],
    )


RULES = (
    Rule("dropout-in-train-loss", dropout_in_train_loss),
    Rule("val-below-train", val_below_train),
    Rule("val-above-train", val_above_train),
    Rule("val-below-train", val_below_training_lines),
    Rule("small-val-split", small_val_split),
    Rule("noisy-eval", noisy_eval),
    Rule("periodic-validation", periodic_validation),
)

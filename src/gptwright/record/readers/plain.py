"""What somebody's own training loop prints: names and numbers in any order, and bars of tqdm, Lightning and
Keras.

No source says what these numbers mean, so nothing is taken for granted: a training loss is that of a batch or
a mean, in whatever mode, and no time is a step's unless its name or unit says so. A counter that begins anew
in every epoch becomes a step where the log prints how many an epoch has, and else the lines are numbered in
order and the evidence says so; where only epochs are counted, steps are epochs, and the evidence says that.

It reads logs that no other reader knows. One line of 30 to 110 characters costs 0.2 to 0.3 ms (measured,
AMD EPYC, Zen 3): some twenty patterns look at each.
"""

import math
import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from gptwright.facts import logged
from gptwright.record.arrays import Booleans, Floats
from gptwright.record.evidence import (
    CARRIED,
    IN_BITS,
    IN_EPOCHS,
    NUMBERED,
    OF_CHARACTERS,
    OF_PERPLEXITIES,
    OF_REWARDS,
    UNNAMED,
    LogFormat,
    TrainLoss,
)
from gptwright.record.readers.build import Builder
from gptwright.record.readers.headers import NVIDIA_SMI, Header
from gptwright.record.readers.history import history
from gptwright.record.readers.nested import flat
from gptwright.record.readers.printed_fields import Printed, printed
from gptwright.record.readers.printed_header import take_header
from gptwright.record.readers.printed_speeds import (
    clock,
    gradient_norm,
    learning_rate,
    step_seconds,
    tokens_per_second,
    tokens_seen,
)
from gptwright.record.readers.printed_table import Row, Table
from gptwright.record.readers.prose import add_sentence, clauses
from gptwright.record.readers.reader import Reader
from gptwright.record.readers.shapes import Columns
from gptwright.record.readers.steps import step_before, step_printed_before
from gptwright.record.readers.tables import Rows, note_tokens

WHERE = ("step", "of", "of_bar", "epoch", "epochs")
TRAIN = Columns(
    "train",
    *WHERE,
    *("loss", "seconds", "tokens_per_second", "learning_rate", "grad_norm", "clock_seconds", "tokens_seen"),
)
# A line of training that prints no loss, as a table of learning rates.
WITHOUT_LOSS = Columns(
    "train",
    *WHERE,
    *("seconds", "tokens_per_second", "learning_rate", "grad_norm", "clock_seconds", "tokens_seen"),
)
EVAL = Columns("eval", *WHERE, "val_loss")
EVAL_IN_BITS = Columns("eval", *WHERE, "val_bpb")
EVAL_IN_BOTH = Columns("eval", *WHERE, "val_loss", "val_bpb")
# Losses of lines that say nothing else; they count where the log has no others.
LOSSES_ALONE = Columns(
    "alone", *(field.column for field in TRAIN.fields[:-2]), "clock_seconds", "tokens_seen"
)
FEWEST_ALONE = 5
# A hazard: a table holds the same column of several runs; the first is read.
BESIDE = "columns of other runs, left out"
# A counter that stands alone, and how many lines it may be the heading of.
ALONE = re.compile(
    r"^[\W_]{0,20}(?:epoch|ep|step|global|iter|iteration|batch|update)|\[step=\d{1,12}/\d{1,12}[^\]]{0,20}\]$",
    re.IGNORECASE,
)
LONGEST_HEADING, LONGEST_BLOCK = 100, 12
# Who writes about a run names the step of one sentence and the loss of another.
SENTENCES = re.compile(
    r"(?<=\w)\. (?=(?:After|Also|And|At|But|By|For|I|In|It|My|On|That|The|Then|This|Train\w*|Val\w*|We)\b)"
)
# Clocks of so many lines make a time of a step; one that goes back by half a day has passed midnight.
FEWEST_TIMES, HALF_A_DAY = 3, 43_200.0
# Evaluations of which so many are the one before are printed again, not made again.
MOST_REPEATED = 0.5
# Of reinforcement, whose loss is none of text.
REWARD = re.compile(r"(?<![a-z])rewards?(?![a-z])", re.IGNORECASE)
NEVER = re.compile(r"(?!)")


class Prints:
    """Reads the lines of such a log.

    Args:
        build: where rows go.
    """

    def __init__(self, build: Builder) -> None:
        self._build = build
        self._table = Table(build.file)
        self._epoch = self._epochs = math.nan
        self._block, self._block_line = Printed(), -LONGEST_BLOCK - 1
        self._block_has_loss = False

    def take(self, text: str, line: int) -> bool:
        """Takes a line if it is data or a fact of the header."""
        exported = self._table.exported(text)
        for row in exported:
            self._of_table(row, line)
        if exported:
            return True
        epochs = list(history(text))
        for said in epochs:
            self._rows(said, line, (math.nan,) * 6)
        if epochs:
            return True
        taken = [
            self._sentence(clause, line) for sentence in SENTENCES.split(text) for clause in clauses(sentence)
        ]
        return any(taken)

    def _sentence(self, text: str, line: int) -> bool:
        row = self._table.take(text)
        if row is not None:
            self._build.hazards[BESIDE] = self._table.left_out
            self._of_table(row, line)
            return True
        text = flat(text)
        found = printed(text)
        add_sentence(text, found)
        if not (found.has_loss or found.evaluates):
            return self._begins(found, text, line) or take_header(self._build, text, line)
        if self._says_again(found, line):
            return True
        placed = self._placed(found, line)
        if found.has_loss and REWARD.search(text):
            found.has_loss, found.loss = False, math.nan
            self._build.hazards[OF_REWARDS] += 1
            self._rows(found, line, (step_seconds(text), *(math.nan,) * 5), counts_alone=placed)
            return True
        if placed or (found.has_loss and not found.evaluates):
            # One line may meet the power of 2 by chance, where the perplexity is of something else.
            self._build.hazards[IN_BITS] += found.in_bits - (found.has_power and not found.in_bits)
            self._build.hazards[OF_CHARACTERS] += found.of_characters
            self._build.hazards[OF_PERPLEXITIES] += found.of_power
            more = (
                step_seconds(text),
                tokens_per_second(text),
                learning_rate(text),
                gradient_norm(text),
                clock(text),
                tokens_seen(text),
            )
            self._rows(found, line, more, TRAIN if placed else LOSSES_ALONE)
            return True
        return take_header(self._build, text, line)

    def _of_table(self, row: Row, line: int) -> None:
        """Adds the rows of a table's line."""
        self._build.hazards[UNNAMED] += self._table.unnamed
        self._rows(
            row.said,
            line,
            (math.nan, row.speed, row.rate, row.norm, row.clock, row.tokens),
            counts_alone=math.isfinite(row.rate) or self._table.unnamed,
        )

    def _placed(self, said: Printed, line: int) -> bool:
        """Gives a line the epoch of the lines before where it names none; False if it is nowhere."""
        if not math.isnan(said.epoch):
            self._build.note_epoch(said.epoch, line)
            self._epoch = said.epoch
            self._epochs = said.epochs if not math.isnan(said.epochs) else self._epochs
        said.epoch, said.epochs = self._epoch, self._epochs
        if math.isnan(said.step) and line - self._block_line <= LONGEST_BLOCK:
            said.step, said.of, said.step_of_bar = self._block.step, self._block.of, self._block.step_of_bar
        # A validation without a place is that of the steps before it.
        return said.counts or (said.evaluates and not said.has_loss and self._build.has_rows())

    def _says_again(self, said: Printed, line: int) -> bool:
        """Whether a line of a block has the perplexity of a loss that a line above it has."""
        if said.counts or line - self._block_line > LONGEST_BLOCK:
            return False
        again = said.of_power and self._block_has_loss and not said.evaluates
        self._block_has_loss |= said.has_loss
        return again

    def _rows(
        self,
        said: Printed,
        line: int,
        more: tuple[float, ...],
        columns: Columns = TRAIN,
        *,
        counts_alone: bool = False,
    ) -> None:
        """Adds the rows of a line; `counts_alone`: it is one of training also without a loss."""
        where = (said.step, said.of, float(said.step_of_bar), said.epoch, said.epochs)
        if said.has_loss:
            self._build.row(columns, line, (*where, said.loss, *more))
        elif counts_alone and not said.evaluates:
            self._build.row(WITHOUT_LOSS, line, (*where, *more))
        if said.has_val_loss and not math.isnan(said.val_bpb):
            self._build.row(EVAL_IN_BOTH, line, (*where, said.val_loss, said.val_bpb))
        elif said.has_val_loss:
            self._build.row(EVAL, line, (*where, said.val_loss))
        elif said.evaluates:
            self._build.row(EVAL_IN_BITS, line, (*where, said.val_bpb))

    def _begins(self, said: Printed, text: str, line: int) -> bool:
        """Takes a line of a counter alone, which says where the lines under it are."""
        if not said.counts or not ALONE.search(text) or len(text) > LONGEST_HEADING:
            return False
        if not math.isnan(said.epoch):
            self._build.note_epoch(said.epoch, line)
            self._epoch, self._epochs = said.epoch, said.epochs
        if not math.isnan(said.step):
            self._block, self._block_line, self._block_has_loss = said, line, False
        return True


def _prints(build: Builder) -> Callable[[str, int], bool]:
    return Prints(build).take


def _finish(build: Builder, train: Rows, evals: Rows) -> LogFormat | None:
    """Gives every row its step."""
    alone = build.tables.pop(LOSSES_ALONE, None)
    if alone is not None and not len(train) and len(alone) >= FEWEST_ALONE * (1 + len(TRAIN.fields)):
        build.tables[TRAIN] = alone
        train.read(build)
        train["step"] = np.zeros(len(train))
        _number(build, train, evals)
        return None
    if not (len(train) or len(evals)):
        # A message of failure alone: whose trainer it is nothing says, and the config counts.
        return replace(PLAIN.format, name="messages alone", gpt2_shaped=True)
    if build.hazards[IN_BITS] > 0:
        for rows, name in ((train, "loss"), (evals, "val_loss")):
            rows[name] = rows[name] * math.log(2)
    _drop_carried(build, train, evals)
    _count(build, train, evals)
    return None


def _drop_carried(build: Builder, train: Rows, evals: Rows) -> None:
    """Keeps of evaluations that training lines repeat until the next one, as bars do, those that are new.

    What they show before the first, NaN or infinity, is none.
    """
    val = evals["val_loss"]
    same = (val[1:] == val[:-1]) | (np.isnan(val[1:]) & np.isnan(val[:-1]))
    again = np.append(False, same) & np.isin(evals.line, train.line)
    moves = len(train) > 1 and (np.diff(train["loss"]) == 0).mean() < MOST_REPEATED
    if len(evals) and moves and again.mean() > MOST_REPEATED:
        evals.take(~again & np.maximum.accumulate(np.isfinite(val)))
        build.hazards[CARRIED] = len(evals)


def _count(build: Builder, train: Rows, evals: Rows) -> None:
    lines = np.concatenate([train.line, evals.line])
    order = np.argsort(lines, kind="stable")
    step, of, of_bar, epoch, _ = (np.concatenate([train[n], evals[n]])[order] for n in WHERE)
    base = 0.0 if np.nanmin(epoch, initial=1.0) == 0 else 1.0
    if not np.isfinite(step).any():
        _in_epochs(build, train, evals, base)
        return
    begins_anew = _begins_anew(step, epoch, of_bar > 0)
    per_epoch = np.isfinite(of) & np.isfinite(epoch)
    if begins_anew and not (per_epoch | np.isnan(step)).all():
        _number(build, train, evals)
        return
    for rows in (train, evals):
        if begins_anew:
            rows["step"] = (rows["epoch"] - base) * rows["of"] + rows["step"]
            rows["planned_steps"] = rows["epochs"] * rows["of"]
        else:
            rows["planned_steps"] = np.where(rows["of"] > rows["step"], rows["of"], np.nan)
    _time(train)
    # The mean of an epoch is no point among steps, and a validation without a step is of the one before.
    train.take(np.isfinite(train["step"]))
    evals["step"] = np.where(np.isfinite(evals["step"]), evals["step"], step_printed_before(train, evals))
    note_tokens(build, train)
    _note_passes(build, train, of_epoch=begins_anew)


def _time(train: Rows) -> None:
    """Takes the time of a step from a clock where no line prints it: a clock that only goes forward."""
    if np.isfinite(train["seconds"]).any() or len(train) < FEWEST_TIMES:
        return
    clocks, steps = train["clock"], np.diff(train["step"])
    passed = np.diff(clocks)
    # Where the newest line stands first, both go down.
    passed, steps = (passed, steps) if (steps > 0).any() else (-passed, -steps)
    passed = np.where(passed < -HALF_A_DAY, passed + 2 * HALF_A_DAY, passed)
    known = np.isfinite(passed) & (steps > 0)
    if known.sum() < FEWEST_TIMES - 1 or (passed[known] <= 0).any():
        return
    seconds = np.full(len(train), np.nan)
    seconds[1:][known] = passed[known] / steps[known]
    train["seconds"] = seconds


def _begins_anew(step: Floats, epoch: Floats, of_bar: Booleans) -> bool:
    """Whether the counter starts again in every epoch."""
    known = np.isfinite(step) & np.isfinite(epoch)
    if not known.any():
        return False
    later = np.diff(epoch[known]) > 0
    if not later.any():
        return bool(of_bar[known].all() and epoch[known][0] > 0)
    return bool((np.diff(step[known])[later] <= 0).any())


def _number(build: Builder, train: Rows, evals: Rows) -> None:
    """Numbers training lines in order, because nothing says their steps."""
    train.take(np.isfinite(train["step"]))
    train["step"] = np.arange(1, len(train) + 1, dtype=np.float64)
    evals["step"] = step_before(train, evals.line)
    build.hazards[NUMBERED] = len(train)
    _note_passes(build, train, of_epoch=False)


def _in_epochs(build: Builder, train: Rows, evals: Rows, base: float) -> None:
    """Takes epochs for steps, where a log has no other counter."""
    epochs = np.concatenate([train["epoch"], evals["epoch"]])
    if (epochs[np.isfinite(epochs)] % 1).any():
        train["step"] = train["epoch"]
        _number(build, train, evals)
        return
    train["step"], evals["step"] = train["epoch"], evals["epoch"]
    build.hazards[IN_EPOCHS] = len(train) + len(evals)
    last = _last_epoch(build, train if len(train) else evals)
    if last is not None:
        _say_epochs(build, last[0] + 1 - base, last[1])


def _note_passes(build: Builder, train: Rows, *, of_epoch: bool) -> None:
    """How many passes over the data were made, where the log counts them by parts."""
    last = _last_epoch(build, train)
    if last is None:
        return
    if of_epoch:
        _say_epochs(build, float(train["step"][-1] / train["of"][-1]), int(train.line[-1]))
    elif last[0] % 1:
        _say_epochs(build, *last)


def _last_epoch(build: Builder, rows: Rows) -> tuple[float, int] | None:
    """The last epoch of a table, and a line that says it: rows behind one need not say it again."""
    known = np.flatnonzero(np.isfinite(rows["epoch"]))
    if not len(known):
        return None
    last = float(rows["epoch"][known[-1]])
    return last, build.epochs_said.get(last, int(rows.line[known[-1]]))


def _say_epochs(build: Builder, epochs: float, line: int) -> None:
    if math.isfinite(epochs) and epochs > 0:
        build.header["epochs"] = logged("epochs", epochs, line)


PLAIN = Reader(
    format=LogFormat(
        name="plain prints",
        train_loss=TrainLoss.NOT_SAID,
        has_dropout=True,
        evaluates_train=False,
        time_includes_evaluation=True,
        any_model=True,
    ),
    begins=NEVER,
    headers=(*NVIDIA_SMI, Header(r"tokens per iteration(?: will be)?: {tokens_per_step}")),
    special=_prints,
    whole_lines=True,
    finish=_finish,
)

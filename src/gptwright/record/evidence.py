"""What a run's record says, whoever trained it: the one model that every reader fills and every rule reads.

A log becomes two tables (training lines and evaluations), the facts of its header, and events; each value
keeps the line it came from. Nothing is added: a value that a line does not have is NaN here, and stays so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, overload

from gptwright.facts import Fact, Value

if TYPE_CHECKING:
    # A plan has settings and no tables, and numpy would cost it a fifth of its time.
    from gptwright.record.arrays import Booleans, Floats, Integers

# A hazard: nothing says the steps of a log's lines, and their order stands in.
NUMBERED = "lines without a step, numbered in order"
# A hazard: a log counts epochs and no steps; its steps are epochs.
IN_EPOCHS = "lines that count epochs and no steps"
# A hazard: rows whose steps follow from the passes that they print and the steps of a pass.
FROM_PASSES = "lines without a step, whose passes tell it"
# A hazard: losses whose perplexity is 2 to their power; they are turned into nats.
IN_BITS = "losses printed in bits, times 0.693"
# A hazard: losses printed as bits a character; in nats they are a character's, and a token's only where its
# tokens are characters.
OF_CHARACTERS = "bits a character, times 0.693"
# A hazard: losses that are logarithms of printed perplexities, whose digits are not those of a print.
OF_PERPLEXITIES = "losses read from perplexities"
# A hazard: losses of reinforcement or preferences, which stand beside rewards; they are none of text.
OF_REWARDS = "losses beside rewards, left out"
# A hazard: rows of a log whose newest line stands first; they are put in the order of their steps.
NEWEST_FIRST = "lines with the newest first, put in order"
# A hazard: values of one quantity of which nothing says what it is.
UNNAMED = "values without a name"
# A hazard: evaluations that training lines repeat until the next one; only where the value changes is known.
CARRIED = "evaluations known from lines that repeat them"
# A hazard: how many runs a log holds, where one starts again from the first step.
SEVERAL_RUNS = "runs in one file"


class TrainLoss(StrEnum):
    """What the loss on a training line is."""

    MICRO_BATCH = "the last micro-batch of the step"
    STEP = "the mean over the step's batch"
    INTERVAL = "the mean over the steps since the line before"
    SMOOTHED = "a running average"
    NOT_SAID = "of a batch or a mean: nothing says it"
    ABSENT = "not logged"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFormat:
    """What a trainer's numbers mean, which its lines do not say. Read in the trainer's source.

    Attributes:
        name: the trainer.
        train_loss: what the loss on a training line is; always in training mode, dropout on.
        has_dropout: whether this trainer's model can have dropout.
        evaluates_train: whether evaluations report an eval-mode loss on training data too.
        time_includes_evaluation: whether the time of a line after an evaluation includes it.
        gpt2_shaped: whether its model is GPT-2's (learned positions, tied head), so that the shape in a
            config gives the parameters exactly.
        any_model: whether nothing is known of its model but what is printed, so that a token is taken to
            cost six FLOPs a parameter.
        measures_peak: whether its MFU is relative to a peak that it measured on the run's own device.
        mfu_of_line: whether a line's MFU is that of its own time; False for a running average over lines.
        counts_passes: whether an epoch that it prints is how many passes were made; else it may number one.
        prints_rate_multiple: whether its learning rate is printed as a multiple of the peak.
        evaluates_same_windows: whether every evaluation is over the same windows, so that two of one run
            differ by the model alone.
        mfu_peak_flops: the peak in FLOP/s that every printed MFU is relative to; None if none is fixed.
        defaults: settings that a run of this trainer has where its config does not name them.
    """

    name: str
    train_loss: TrainLoss
    has_dropout: bool
    evaluates_train: bool
    time_includes_evaluation: bool
    gpt2_shaped: bool = False
    any_model: bool = False
    measures_peak: bool = False
    mfu_of_line: bool = False
    counts_passes: bool = False
    prints_rate_multiple: bool = False
    evaluates_same_windows: bool = False
    mfu_peak_flops: float | None = None
    defaults: Mapping[str, Value] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TrainLines:
    """One row a training line, in the order of printing; arrays of one length. NaN: the line does not say it.

    Attributes:
        step: optimizer step, as the trainer counts.
        line: line of the log, from 1.
        segment: 0 for the first process, one more after each resume or restart.
        loss: nats a token; NaN or infinite also where the trainer printed that, see `loss_is_bad`.
        loss_is_bad: the trainer printed NaN or infinity.
        seconds: one optimizer step, as printed or as differences of a printed clock.
        tokens_per_second: as printed, over all devices.
        mfu: as printed, from 0 to 1; NaN where the trainer printed that it does not know.
        learning_rate: as printed.
        grad_norm: as printed, before clipping.
        epoch: as printed.
    """

    step: Integers
    line: Integers
    segment: Integers
    loss: Floats
    loss_is_bad: Booleans
    seconds: Floats
    tokens_per_second: Floats
    mfu: Floats
    learning_rate: Floats
    grad_norm: Floats
    epoch: Floats

    def __len__(self) -> int:
        return len(self.step)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EvalLines:
    """One row an evaluation, in the order of printing; arrays of one length. NaN: the line does not say it.

    Attributes:
        step: optimizer step of the weights that were evaluated.
        line: line of the log, from 1.
        segment: as in `TrainLines`.
        train_loss: eval-mode loss on training data, nats a token.
        val_loss: validation loss, nats a token.
        loss_is_bad: one of the two was printed as NaN or infinity.
        val_bpb: validation bits a byte.
        train_standard_error: as printed.
        val_standard_error: as printed.
        epoch: as printed.
    """

    step: Integers
    line: Integers
    segment: Integers
    train_loss: Floats
    val_loss: Floats
    loss_is_bad: Booleans
    val_bpb: Floats
    train_standard_error: Floats
    val_standard_error: Floats
    epoch: Floats

    def __len__(self) -> int:
        return len(self.step)


class EventKind(StrEnum):
    """What else a log line can tell."""

    CHECKPOINT = "checkpoint"
    RESUME = "resume"
    OUT_OF_MEMORY = "out of memory"
    WARNING = "warning"
    ERROR = "error"
    SKIPPED_UPDATE = "skipped update"
    GUARD = "guard"


# Characters of a comment that are read: no claim about a setting is further along.
LONGEST_COMMENT = 1_000
# What ends a process: the one that goes on behind it is another.
FATAL = frozenset((EventKind.OUT_OF_MEMORY, EventKind.ERROR))


@dataclass(frozen=True, slots=True)
class Event:
    """One line that is no number of a step.

    Attributes:
        kind: what it tells.
        line: line of the log, from 1.
        step: the last step that was printed before it; None before the first.
        text: the line itself, cleaned, at most 500 characters; of a failed allocation, whose sizes name the
            tensor, at most 2,000.
    """

    kind: EventKind
    line: int
    step: int | None
    text: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LogEvidence:
    """Everything that one log says.

    Attributes:
        format: what its numbers mean.
        path: the file; `-` for standard input.
        lines_read: physical lines in the file.
        lines_skipped: lines that look like data and could not be read whole (glued, cut, damaged).
        hazards: what was repaired or met, with its count, such as `joined wrapped lines`.
        header: facts of the run that stand outside the tables, by standard name.
        settings: settings that the log echoes, by field name.
        train: training lines.
        evals: evaluations.
        events: everything else.
        last_run_segment: the segment with which the last run of the file starts; 0 where there is one run.
        comments: comments beside the settings that it echoes, or that were pasted with it.
        batches: what its headers say of a step's tokens and their factors, in order; a run that is resumed
            says it again.
    """

    format: LogFormat
    path: str
    lines_read: int
    lines_skipped: int
    hazards: Mapping[str, int]
    header: Mapping[str, Fact]
    settings: Mapping[str, Fact]
    train: TrainLines
    evals: EvalLines
    events: tuple[Event, ...]
    last_run_segment: int = 0
    comments: tuple[Comment, ...] = ()
    batches: tuple[Fact, ...] = ()

    @overload
    def moment(self, line: int) -> int: ...

    @overload
    def moment(self, line: Integers) -> Integers: ...

    def moment(self, line: int | Integers) -> int | Integers:
        """What rises with time as lines do, also in a log whose newest line stands first."""
        return -line if self.hazards.get(NEWEST_FIRST) else line


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment beside settings.

    Attributes:
        text: without its sign, at most `LONGEST_COMMENT` characters.
        line: of the file, from 1.
        field: the setting on the same line, if any.
        in_log: the file is a log, not a config.
    """

    text: str
    line: int
    field: str | None
    in_log: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ConfigEvidence:
    """What a run's config file says, ours or not.

    Attributes:
        path: the file.
        settings: what it sets, by field name; `reason` is the file and line.
        comments: its comments, which may claim things.
        skipped: statements that were no assignment of a literal.
        complete: defaults are among the settings, so that what is not there is not set.
    """

    path: Path
    settings: Mapping[str, Fact]
    comments: tuple[Comment, ...]
    skipped: int
    complete: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RunEvidence:
    """A run as somebody hands it over: its log, its config, and what is stated about it.

    Attributes:
        path: what was named.
        log: None where only a config is there (a plan).
        config: None where there is none.
        stated: facts of facts.toml and of options: `device`, `device_count`, `train_tokens`, `val_tokens`,
            `vocab_size`, `dataset`, `torch`, `note`.
    """

    path: str
    log: LogEvidence | None
    config: ConfigEvidence | None
    stated: Mapping[str, Fact]

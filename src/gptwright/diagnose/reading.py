"""A run as the rules see it: everything that its evidence says and everything that follows from it.

The evidence is what was handed over; the reading adds what arithmetic recovers, each value with its formula.
What cannot be known is None, and no rule may fire on it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import Any, TypeVar

from gptwright.diagnose.batches import Batch, batches_of, in_words, tokens_at
from gptwright.diagnose.last_run import last_run
from gptwright.diagnose.machine import Machine, machine_of
from gptwright.diagnose.settings import Settings
from gptwright.diagnose.sizes import Sizes, sizes_of
from gptwright.diagnose.speed import Speed, processes_of, speed_of
from gptwright.facts import Fact, Origin, derived
from gptwright.record.evidence import (
    FROM_PASSES,
    IN_EPOCHS,
    NUMBERED,
    OF_CHARACTERS,
    EvalLines,
    LogEvidence,
    RunEvidence,
    TrainLines,
)

T = TypeVar("T")

# Vocabularies of characters or bytes have fewer rows, those of pieces of words more.
MOST_CHARACTERS = 1024
# The smallest vocabulary that is like GPT-2's; below it are characters, bytes and toy tokenizers.
SMALLEST_BPE = 4096


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run came and how far it was to go.

    Attributes:
        first_step: of the first line that has one.
        last_step: of the last.
        planned_steps: what config or log say the run is to make.
        tokens_seen: as the log counts them; else last_step × tokens_per_step, piece by piece where a resume
            changed the batch; else the passes that the log counts × the training tokens.
        planned_tokens: planned_steps × tokens_per_step, likewise.
        tokens_per_parameter: tokens_seen over the parameters.
        epochs: tokens_seen over the training tokens, or as the log counts them.
        planned_epochs: planned_tokens over the training tokens.
        batches: the parts of the run by their tokens a step; none where those are not known.
        other_work: the work of an earlier step over that of the last, where the batch seems to have changed
            and nothing says to what.
    """

    first_step: Fact | None
    last_step: Fact | None
    planned_steps: Fact | None
    tokens_seen: Fact | None
    planned_tokens: Fact | None
    tokens_per_parameter: Fact | None
    epochs: Fact | None
    planned_epochs: Fact | None
    batches: tuple[Batch, ...] = ()
    other_work: Fact | None = None

    def tokens_at(self, step: float) -> float | None:
        """Tokens that were seen after so many steps; None where that is not known."""
        return tokens_at(self.batches, step) if self.batches else None


@dataclass(frozen=True, slots=True)
class Reading:
    """Everything known about a run.

    Attributes:
        evidence: what was handed over; of a log that holds several runs, the last one.
        settings: what it was set to.
        machine: where it ran.
        sizes: its model.
        speed: how fast it was.
        progress: how far it came.
        mfu: the share of this device's peak, from 0 to 1.
        planned_seconds: how long the planned steps take, where a plan or a log tells the speed.
        answers: of questions that were put to it before (`once`).
    """

    evidence: RunEvidence
    settings: Settings
    machine: Machine
    sizes: Sizes
    speed: Speed
    progress: Progress
    mfu: Fact | None
    planned_seconds: Fact | None
    answers: dict[Callable[..., Any], Any] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @property
    def log(self) -> LogEvidence | None:
        """The log, if there is one."""
        return self.evidence.log

    @property
    def train(self) -> TrainLines | None:
        """The training lines, if there are any."""
        return self.log.train if self.log is not None and len(self.log.train) else None

    @property
    def evals(self) -> EvalLines | None:
        """The evaluations, if there are any."""
        return self.log.evals if self.log is not None and len(self.log.evals) else None

    @property
    def vocab_size(self) -> Fact | None:
        """Rows of the vocabulary that the losses are over, where anything says so."""
        rows = self.settings.get("vocab_size")
        of_characters = self.log is not None and self.log.hazards.get(OF_CHARACTERS)
        # A loss of a character is none over the tokens of a larger vocabulary.
        return None if rows is not None and of_characters and rows.number > MOST_CHARACTERS else rows

    @property
    def steps_are_known(self) -> bool:
        """Whether the log says its steps; else their order or epochs stand in, and no number is a step."""
        return self.log is None or _says_steps(self.log)

    def at(self, step: int) -> str:
        """Where in the run a row is, in words."""
        if self.log is not None and self.log.hazards.get(IN_EPOCHS):
            return f"epoch {step:,}"
        return f"step {step:,}" if self.steps_are_known else f"training line {step:,} of the log"

    @property
    def starts_from_scratch(self) -> bool:
        """Whether nothing says that the weights came from elsewhere."""
        return (self.settings.word("init_from") or "scratch") in ("scratch", "auto")


def once(question: Callable[[Reading], T]) -> Callable[[Reading], T]:
    """A function of a reading that works only once on each: several rules ask the same of a million rows."""

    @wraps(question)
    def answer(reading: Reading) -> T:
        if question not in reading.answers:
            reading.answers[question] = question(reading)
        known: T = reading.answers[question]
        return known

    return answer


def read_run(evidence: RunEvidence, *, seconds_per_step: Fact | None = None) -> Reading:
    """Derives everything that follows from a run's evidence.

    Args:
        evidence: log, config and stated facts.
        seconds_per_step: what a plan expects of a run that has no log yet.
    """
    evidence = replace(evidence, log=last_run(evidence.log))
    settings = Settings.of(evidence)
    machine = machine_of(
        settings, measured_here=evidence.log is not None and evidence.log.format.measures_peak
    )
    sizes = sizes_of(settings, evidence.log)
    speed = speed_of(settings, sizes, evidence.log, machine.count)
    processes = processes_of(speed, settings, evidence.log)
    if processes is not None and processes.number != machine.count:
        count = int(processes.number)
        machine = replace(machine, count=count, count_known=True, processes=processes)
        speed = speed_of(settings, sizes, evidence.log, count)
    evidence = replace(evidence, log=_with_steps(evidence.log, settings, speed))
    progress = _progress(settings, sizes, speed, evidence.log)
    seconds = speed.step_seconds or seconds_per_step
    planned_seconds = None
    if seconds is not None and progress.planned_steps is not None:
        formula = f"{progress.planned_steps.text} steps × {seconds.text}"
        value = progress.planned_steps.number * seconds.number
        planned_seconds = derived("planned_seconds", value, formula, unit="seconds")
    return Reading(evidence, settings, machine, sizes, speed, progress, _mfu(machine, speed), planned_seconds)


def _mfu(machine: Machine, speed: Speed) -> Fact | None:
    if machine.peak is None or speed.achieved_flops is None:
        return None
    formula = f"{speed.achieved_flops.text} of this device's {machine.peak.text}"
    return derived("mfu", speed.achieved_flops.number / machine.peak.number, formula, unit="fraction")


def _progress(settings: Settings, sizes: Sizes, speed: Speed, log: LogEvidence | None) -> Progress:
    first, last = _end_steps(log) if log and _says_steps(log) else (None, None)
    planned = settings.logged.get("planned_steps") or settings.get("max_iters")
    if settings.flag("eval_only"):
        planned = None
    work = _other_work(log)
    batches = batches_of(log, speed.tokens_per_step) if work is None else ()
    seen, planned_tokens = _tokens("tokens_seen", last, batches), _tokens("planned_tokens", planned, batches)
    seen = settings.logged.get("tokens_seen") or seen
    unique, passes = settings.get("train_tokens"), settings.logged.get("epochs")
    if seen is None and unique is not None and passes is not None:
        formula = f"{passes.number:g} passes by the log × {unique.text} training tokens"
        seen = derived("tokens_seen", round(passes.number * unique.number), formula, unit="tokens")
    return Progress(
        first_step=first,
        last_step=last,
        planned_steps=planned,
        tokens_seen=seen,
        planned_tokens=planned_tokens,
        tokens_per_parameter=_quotient("tokens_per_parameter", seen, sizes.parameters),
        epochs=_quotient("epochs", seen, unique) or passes,
        planned_epochs=_quotient("planned_epochs", planned_tokens, unique),
        batches=batches,
        other_work=work,
    )


def _with_steps(log: LogEvidence | None, settings: Settings, speed: Speed) -> LogEvidence | None:
    if log is None:
        return None
    # numpy, which a plan has no use for, is loaded with it.
    from gptwright.diagnose.passes import with_steps

    return with_steps(log, settings, speed.tokens_per_step)


def _other_work(log: LogEvidence | None) -> Fact | None:
    if log is None:
        return None
    # numpy, which a plan has no use for, is loaded with it.
    from gptwright.diagnose.timing import other_work

    return other_work(log)


def _says_steps(log: LogEvidence) -> bool:
    return not (log.hazards.get(NUMBERED) or log.hazards.get(IN_EPOCHS))


def _end_steps(log: LogEvidence) -> tuple[Fact | None, Fact | None]:
    """The first step that the log names, and the last of its last process."""
    rows = [
        (int(table.segment[row]), int(table.step[row]), int(table.line[row]))
        for table in (log.train, log.evals)
        if len(table)
        for row in (0, -1)
    ]
    if not rows:
        return None, None
    _, first_step, first_line = min(rows)
    final = max(segment for segment, _, _ in rows)
    last_step, last_line = max((step, line) for segment, step, line in rows if segment == final)
    first, last = _step("first_step", first_step, first_line), _step("last_step", last_step, last_line)
    if log.hazards.get(FROM_PASSES):
        each = (
            f"passes of about {log.train.step[-1] / log.train.epoch[-1]:,.0f} steps, which line {{}} counts"
        )
        return (
            derived("first_step", first_step, each.format(first_line), unit="steps"),
            derived("last_step", last_step, each.format(last_line), unit="steps"),
        )
    # A summary has a line for each of its values.
    said = log.header.get("last_step")
    if said is None or said.value != last_step:
        return first, last
    there = replace(last, reason=said.reason, source=said.source)
    return replace(there, name="first_step") if first_step == last_step else first, there


def _step(name: str, step: int, line: int) -> Fact:
    return Fact(
        name=name,
        value=int(step),
        text=f"{step:,}",
        origin=Origin.LOGGED,
        reason=f"line {line} of the log",
        unit="steps",
        source=f"log:{line}",
    )


def _tokens(name: str, steps: Fact | None, batches: tuple[Batch, ...]) -> Fact | None:
    if steps is None or not batches:
        return None
    value = tokens_at(batches, steps.number)
    formula = in_words(batches, steps.number)
    return derived(name, int(value) if value == int(value) else value, formula, unit="tokens")


def _quotient(name: str, above: Fact | None, below: Fact | None) -> Fact | None:
    if above is None or below is None or not below.number:
        return None
    return derived(
        name, above.number / below.number, f"{above.text} {above.name} / {below.text} {below.name}"
    )

"""Whether a log is whole: its beginning, its steps, one run in it, and in order."""

from collections.abc import Iterator

from gptwright.diagnose.reading import Reading
from gptwright.diagnose.rule import Rule, Verdict, finding
from gptwright.facts import logged
from gptwright.findings import Action, Confidence, Severity, Unknown
from gptwright.record.evidence import FATAL, IN_EPOCHS, NEWEST_FIRST, SEVERAL_RUNS, UNNAMED

# A log that begins later than this many log lines into a run has lost its beginning.
LATE_START = 3


def incomplete_log(reading: Reading) -> Iterator[Verdict]:
    """A log that begins in the middle of a run, without the header that says model and batch, leaves its own
    numbers without meaning. What the config gives, or what MFU × peak × time / FLOPs gives back, is said. A
    log that begins at its first step is whole even without a header.
    """
    log, first = reading.log, reading.progress.first_step
    if log is None:
        yield from _without_a_log(reading)
        return
    if log.hazards.get(UNNAMED):
        yield Unknown(
            "What are the values of this file?",
            "the quantity: TensorBoard's export names it in the file's name alone, as in"
            " run-1-tag-val_loss.csv",
        )
    if not len(log.train) and not len(log.evals) and not any(event.kind in FATAL for event in log.events):
        yield Unknown("What became of the run?", "a line of a step: the log ends before the first")
    if not reading.steps_are_known:
        counted = "epochs alone" if log.hazards.get(IN_EPOCHS) else "none"
        elsewhere = "; trainer_state.json has them" if log.format.name == "Hugging Face Trainer" else ""
        yield Unknown(
            "How many steps were made?", f"the steps of its lines: the log prints {counted}{elsewhere}"
        )
    if first is None:
        return
    header = log.header.keys() & {"parameters", "parameters_total", "tokens_per_step", "decayed_parameters"}
    steps = log.train.step
    interval = int(steps[1] - steps[0]) if len(steps) > 1 else 1
    if header or first.number <= max(1, LATE_START * interval):
        return
    recovered: list[str] = []
    missing: list[str] = []
    for name, fact in (
        ("model size", reading.sizes.parameters),
        ("tokens per step", reading.speed.tokens_per_step),
    ):
        (recovered if fact is not None else missing).append(
            name if fact is None else f"{name} {fact.text} ({fact.reason})"
        )
    message = f"The log begins at step {first.text} without a header."
    message += f" Recovered: {'; '.join(recovered)}." if recovered else ""
    message += f" Not known: {', '.join(missing)}." if missing else ""
    yield finding(
        "incomplete-log",
        Severity.INFO,
        Confidence.CERTAIN,
        message,
        [
            first,
            reading.sizes.parameters,
            reading.speed.tokens_per_step,
            reading.speed.implied_tokens_per_step,
        ],
        actions=[Action("Keep the whole log: python train.py … 2>&1 | tee -a log.txt")],
    )


def _without_a_log(reading: Reading) -> Iterator[Verdict]:
    """What a config alone leaves open."""
    yield Unknown(
        "How fast is it, and what does it reach?",
        "a log of the run; what to expect of one says gptwright plan CONFIG",
    )
    if reading.sizes.parameters is None and reading.settings.get("n_embd") is not None:
        yield Unknown("How large is the model?", "its vocabulary: --vocab-size N, or a dataset that is known")


def several_runs(reading: Reading) -> Iterator[Verdict]:
    """A log to which a second run was appended, which begins again at the first step. Everything that is said
    is of the last run; what happened in those before it, a crash or a divergence, is not. A resume is none.
    """
    log = reading.log
    runs = log.hazards.get(SEVERAL_RUNS, 0) if log is not None else 0
    if log is None or runs < 2:
        return
    firsts = [int(line) for table in (log.train, log.evals) for line in table.line[:1]]
    begins = min(firsts, key=log.moment)
    yield finding(
        "several-runs",
        Severity.INFO,
        Confidence.CERTAIN,
        f"The log holds {runs} runs; the last begins at line {begins}, and what is said here is of that one.",
        [logged("runs", runs, begins), reading.progress.first_step],
        actions=[Action("Give each run a log of its own, and diagnose those before it by themselves.")],
    )


def newest_first(reading: Reading) -> Iterator[Verdict]:
    """A log whose steps only go down was pasted or exported with its newest line first. Its rows are put in
    the order of their steps, each with the line that it stands in.
    """
    log = reading.log
    if log is None or not log.hazards.get(NEWEST_FIRST):
        return
    first, last = reading.progress.first_step, reading.progress.last_step
    lines = [int(line) for table in (log.train, log.evals) for line in table.line[:1]]
    yield finding(
        "newest-first",
        Severity.INFO,
        Confidence.CERTAIN,
        "The steps of this log go down from line to line: its newest line stands first. It is read from its"
        " end.",
        [last, first, logged("oldest_line", max(lines), max(lines))],
    )


RULES = (
    Rule("incomplete-log", incomplete_log),
    Rule("several-runs", several_runs),
    Rule("newest-first", newest_first),
)

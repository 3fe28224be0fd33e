"""The times of steps: what hides in them, where one waited, and where all became slower."""

from collections.abc import Iterator, Sequence

import numpy as np

from gptwright import units
from gptwright.diagnose.reading import Reading
from gptwright.diagnose.rule import Rule, Verdict, finding
from gptwright.diagnose.timing import FEWEST_LINES, clean_lines, line_seconds
from gptwright.facts import Fact, derived, logged
from gptwright.findings import Action, Cause, Confidence, Severity
from gptwright.record.arrays import Booleans, Floats, Integers
from gptwright.record.evidence import EventKind, LogEvidence

# An isolated step of five times the median is no jitter: the slowest tenth of healthy steps is within 1.3.
STALL_FACTOR = 5
# Of more lines than this the usual one is not known.
MOST_STALLED = 1 / 3
# Steps slower than this share, all at evaluations, hold the evaluation.
SLOW_WITH_EVALUATION = 1.1
# So many slow steps that are evenly apart are no chance.
FEWEST_EVENLY_APART = 3
# Clocks of a warm card settle within a few percent. A power or heat limit takes a third of a laptop's speed
# as a matter of course; from twice the time on it is a warning.
SLOWER, MUCH_SLOWER = 1.15, 2.0
# Lines that tell the usual time at the beginning, a tenth of the run, as a laptop is hot within minutes, and
# at the end, a quarter.
FEWEST_FOR_SLOWER, FEWEST_AT_FIRST = 40, 10
# Lines whose median is the time at a place; and how long a way from quick to slow is a gradual one.
SMOOTHED, GRADUAL = 9, 0.1
OTHER_PROCESS = "another process took a part of the device, the CPU or the disk"


def eval_in_timing(reading: Reading) -> Iterator[Verdict]:
    """nanoGPT and its relatives start the clock before the evaluation, so the line after one prints a time
    that holds it, and the running MFU falls and takes tens of lines to come back. It fires only where such
    lines are there and are slower than the others; the first evaluation, which also holds compilation, is not
    counted. Source: the trainers' own sources.
    """
    log, seconds = reading.log, reading.speed.step_seconds
    if log is None or seconds is None or not log.format.time_includes_evaluation:
        return
    train, times = log.train, line_seconds(log, reading.speed.tokens_per_step)
    clean = clean_lines(log, times)
    slow = np.isin(train.step, log.evals.step) & (train.step > train.step[0])
    slow &= times > SLOW_WITH_EVALUATION * max(seconds.number, float(np.quantile(times[clean], 0.9)))
    if not slow.any():
        return
    slowest, lines = times[slow], train.line[slow]
    at = "line at an evaluation prints" if len(lines) == 1 else "lines at evaluations print"
    hold = "holds" if len(lines) == 1 else "hold"
    average = ""
    if reading.speed.printed_mfu is not None:
        average = (
            f" The printed MFU is an average that {'it pulls' if len(lines) == 1 else 'they pull'} down."
        )
    yield finding(
        "eval-in-timing",
        Severity.INFO,
        Confidence.CERTAIN,
        f"{len(lines)} {at} about {units.duration(float(np.median(slowest)))} and {hold} the evaluation; a"
        f" step alone takes {seconds.text}.{average}",
        [
            seconds,
            *(_seconds_fact(times, train.line, int(row)) for row in np.flatnonzero(slow)[:3]),
            derived("lines_with_evaluation", len(slowest), f"lines {lines[0]} to {lines[-1]} of the log"),
        ],
    )


def data_stall(reading: Reading) -> Iterator[Verdict]:
    """An isolated step of at least five times the median, where nothing is evaluated or saved, waited for
    something: the next shard of data, a full disk cache, another process. The first lines of a process hold
    compilation and are left out, and so is a run of which a third of the steps are slow. Slow steps that are
    evenly apart from the beginning to the end hold an evaluation or a checkpoint whose lines the log has
    lost, as where only the lines of steps were kept: that is eval-in-timing. Source: a public run of
    build-nanogpt whose steps took up to 186 s at its shards' ends.
    """
    log, seconds = reading.log, reading.speed.step_seconds
    if log is None or seconds is None:
        return
    times = line_seconds(log, reading.speed.tokens_per_step)
    clean = clean_lines(log, times)
    if clean.sum() < 20:
        return
    stalled = np.flatnonzero(clean & (times > STALL_FACTOR * seconds.number) & ~_at_checkpoint(log))
    if not len(stalled) or len(stalled) > MOST_STALLED * clean.sum():
        return
    apart = _evenly_apart(log.train.step[stalled], log.train.step[clean])
    if apart is not None:
        yield _regular(reading, seconds, times, stalled, apart)
        return
    steps, lost = log.train.step[stalled], float(times[stalled].sum())
    shown = ", ".join(
        f"{step} ({units.duration(t)})" for step, t in zip(steps[:5], times[stalled][:5], strict=False)
    )
    yield finding(
        "data-stall",
        Severity.WARNING,
        Confidence.LIKELY,
        f"Steps {shown} took at least {STALL_FACTOR} times the usual {seconds.text}, with no evaluation in"
        f" them: {units.duration(lost)} waited on the lines that are logged.",
        [
            seconds,
            *(_seconds_fact(times, log.train.line, int(row)) for row in stalled[:5]),
        ],
        causes=[
            Cause("the next shard of data was read when it was needed", Confidence.LIKELY),
            Cause("another process used the device, the disk or the CPU", Confidence.POSSIBLE),
        ],
        actions=[Action("Read shards by memory map or ahead of time, from a local disk.")],
    )


def _evenly_apart(slow: Integers, steps: Integers) -> int | None:
    """How many steps lie between slow ones, if all that are so far apart are slow; None if it is not so."""
    apart = int(np.gcd.reduce(np.diff(slow))) if len(slow) >= FEWEST_EVENLY_APART else 0
    # Three that are so by chance do not begin with the run and end with it.
    if apart < 1 or slow[0] - steps[0] > apart or steps[-1] - slow[-1] >= apart:
        return None
    at_distance = (steps >= slow[0]) & ((steps - slow[0]) % apart == 0)
    return apart if at_distance.sum() == len(slow) else None


def _regular(reading: Reading, seconds: Fact, times: Floats, slow: Integers, apart: int) -> Verdict:
    """The finding of steps that hold something which is done at a fixed interval."""
    log = reading.log
    assert log is not None
    steps, usual = log.train.step[slow], float(np.median(times[slow]))
    return finding(
        "eval-in-timing",
        Severity.INFO,
        Confidence.LIKELY,
        f"Every {apart:,} steps, from {reading.at(int(steps[0]))} to {reading.at(int(steps[-1]))}, one takes"
        f" about {units.duration(usual)} in place of {seconds.text}: something that is done at a fixed"
        " interval, and of which this log has no line, is timed with it.",
        [
            seconds,
            *(_seconds_fact(times, log.train.line, int(row)) for row in slow[:3]),
            derived("steps_apart", apart, f"between {len(slow)} slow lines", unit="steps"),
        ],
        causes=[
            Cause("an evaluation, or a checkpoint, whose lines the log has lost", Confidence.LIKELY),
            Cause("data that is read in parts of just that many steps", Confidence.POSSIBLE),
        ],
    )


def slower_steps(reading: Reading) -> Iterator[Verdict]:
    """Steps of the same work take the same time. Where those of the last quarter of a process take 15 %
    longer than those of its first tenth, and three quarters of them than three quarters of those, something
    took speed away on the way: a card or laptop that got hot or reached its power limit, another process,
    memory that filled up. Evaluations, checkpoints and the first lines are left out, and so are trainers that
    lengthen their context on the way (modded-nanogpt). Source: clocks of consumer cards and laptops under
    load.
    """
    log, seconds = reading.log, reading.speed.step_seconds
    if log is None or seconds is None or log.format.name == "modded-nanogpt":
        return
    times = line_seconds(log, reading.speed.tokens_per_step)
    last = log.train.segment == log.train.segment[-1]
    if (resumed := _slower_since_a_resume(reading, times)) is not None:
        yield resumed
    rows = np.flatnonzero(clean_lines(log, times) & ~_at_checkpoint(log) & last)
    if len(rows) < FEWEST_FOR_SLOWER:
        return
    tenth, quarter = max(FEWEST_AT_FIRST, len(rows) // 10), len(rows) // 4
    first, late = times[rows[:tenth]], times[rows[-quarter:]]
    before, after = float(np.median(first)), float(np.median(late))
    if after < SLOWER * before or np.quantile(late, 0.25) <= np.quantile(first, 0.75):
        return
    smooth = np.median(np.lib.stride_tricks.sliding_window_view(times[rows], SMOOTHED), axis=1)
    share = (smooth - before) / (after - before)
    since = int(rows[int(np.flatnonzero(share < 0.5)[-1]) + 1 + SMOOTHED // 2])
    on_the_way = float(np.mean((share > 0.2) & (share < 0.8)))
    how = (
        ", little by little"
        if on_the_way > GRADUAL
        else f", from about {reading.at(int(log.train.step[since]))} on"
    )
    usual = next(int(row) for row in rows if times[row] >= before)
    yield _slower(
        (before, after),
        f"A step took {units.duration(before)} at first and {units.duration(after)} at the end,"
        f" {100 * (after / before - 1):.0f} % longer{how}.",
        [
            _seconds_fact(times, log.train.line, usual),
            _seconds_fact(times, log.train.line, since),
            derived("seconds_at_first", before, f"median of the first {tenth} lines", unit="seconds"),
            derived("seconds_at_the_end", after, f"median of the last {quarter} lines", unit="seconds"),
        ],
        causes=(
            "the device got hot or reached its power limit and lowered its clock",
            OTHER_PROCESS,
            "memory filled up on the way, and pages are swapped or read anew",
        ),
        actions=[
            Action(
                "Watch clock, temperature and power while it trains: nvidia-smi dmon, or a laptop's sensors."
            )
        ],
    )


def _slower(
    seconds: tuple[float, float],
    message: str,
    evidence: Sequence[Fact],
    *,
    causes: Sequence[str],
    actions: Sequence[Action] = (),
) -> Verdict:
    """The finding of steps that took the first of these times and take the second."""
    quick, slow = seconds
    return finding(
        "slower-steps",
        Severity.WARNING if slow >= MUCH_SLOWER * quick else Severity.INFO,
        Confidence.LIKELY,
        message,
        evidence,
        causes=[Cause(text, Confidence.POSSIBLE) for text in causes],
        actions=actions,
    )


def _slower_since_a_resume(reading: Reading, times: Floats) -> Verdict | None:
    """The finding of steps of the same batch that take longer than those of the process before."""
    log = reading.log
    assert log is not None
    segment, clean = log.train.segment, clean_lines(log, times)
    every = clean_lines(log, times, any_pace=True)
    rows, before = np.flatnonzero(clean), np.flatnonzero(every & ~clean)
    before = before[segment[before] == segment[before][-1]] if len(before) else before
    if len(rows) < FEWEST_LINES or len(before) < FEWEST_LINES:
        return None
    quick, slow = float(np.median(times[before])), float(np.median(times[rows]))
    if slow < SLOWER * quick:
        return None
    since = reading.at(int(log.train.step[rows[0]]))
    return _slower(
        (quick, slow),
        f"A step took {units.duration(quick)} before the run was resumed and takes {units.duration(slow)}"
        f" since, from about {since} on: {100 * (slow / quick - 1):.0f} % longer with the same tokens.",
        [
            _seconds_fact(times, log.train.line, int(before[-1])),
            _seconds_fact(times, log.train.line, int(rows[0])),
        ],
        causes=(
            "another machine, or fewer devices, since the resume",
            "another setting since, such as compile, dtype or the micro-batch",
            OTHER_PROCESS,
        ),
    )


def _at_checkpoint(log: LogEvidence) -> Booleans:
    """Training lines right after a line that reports a checkpoint, or right before one."""
    marks: Integers = np.array([e.line for e in log.events if e.kind is EventKind.CHECKPOINT], dtype=np.int64)
    lines = log.train.line
    after = np.isin(lines - 1, marks) | np.isin(lines - 2, marks)
    return after | np.isin(lines + 1, marks)


def _seconds_fact(seconds: Floats, lines: Integers, row: int) -> Fact:
    return logged("step_seconds", float(seconds[row]), int(lines[row]), unit="seconds")


RULES = (
    Rule("eval-in-timing", eval_in_timing),
    Rule("data-stall", data_stall),
    Rule("slower-steps", slower_steps),
)

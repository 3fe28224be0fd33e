"""Step times, rates and the MFU as a log's lines print them, without what does not belong to them.

A printed step time may hold an evaluation, a checkpoint, or compilation; those lines are left out. A printed
MFU is a running average over all of them, so it is read where it is least disturbed.
"""

import numpy as np

from gptwright.diagnose.batches import says_batches, segment_of_last_batch
from gptwright.facts import Fact, Origin, derived
from gptwright.record.arrays import Booleans, Floats, Integers
from gptwright.record.evidence import LogEvidence

# The first lines of a process hold compilation, autotuning and cold caches.
WARM_UP_LINES = 2
# A running average (nanoGPT keeps 9/10 of the old value) that an evaluation has pulled down is back within
# 2 % of the truth after some 20 lines, so the upper tenth of its values is the undisturbed one.
UNDISTURBED_QUANTILE = 0.9
# Lines that a median of MFU × time needs; a running average and a busy machine move it by less than this.
FEWEST_LINES, OTHER_WORK = 5, 1.5
# Medians of processes on the same machine differ by a few percent.
OTHER_PACE = 1.15


def line_seconds(log: LogEvidence, tokens_per_step: Fact | None) -> Floats:
    """Seconds a step on every training line; a trainer that prints only a rate gives them by it."""
    train = log.train
    if np.isfinite(train.seconds).any() or tokens_per_step is None:
        return train.seconds
    with np.errstate(divide="ignore"):
        seconds: Floats = tokens_per_step.number / train.tokens_per_second
    return seconds


def clean_lines(log: LogEvidence, seconds: Floats, *, any_pace: bool = False) -> Booleans:
    """Which training lines time a step of the run's last batch and nothing else: no first line of a process,
    no evaluation.

    Args:
        log: of the run.
        seconds: of each line.
        any_pace: also those of processes before the last that were quicker or slower, as on another machine.
    """
    train = log.train
    clean = np.isfinite(seconds) & (seconds > 0) & (train.segment >= segment_of_last_batch(log))
    starts = np.flatnonzero(np.diff(train.segment, prepend=-1))
    position = np.arange(len(train)) - np.repeat(starts, np.diff(np.append(starts, len(train))))
    # A log of a few lines cannot spare two of them; one is what compilation needs.
    clean &= position >= (WARM_UP_LINES if len(train) > 4 * WARM_UP_LINES else 1)
    if log.format.time_includes_evaluation:
        clean &= ~np.isin(train.step, log.evals.step)
    return clean if any_pace else clean & (train.segment >= _segment_of_last_pace(log, seconds, clean))


def _segment_of_last_pace(log: LogEvidence, seconds: Floats, clean: Booleans) -> int:
    """The first process from which on steps take what they take in the last one."""
    processes = _processes(log, clean)
    if len(processes) < 2 or len(processes[-1]) < FEWEST_LINES:
        return 0
    medians = np.array([np.median(seconds[rows]) for rows in processes])
    ratios = medians / medians[-1]
    other = np.flatnonzero((ratios <= 1 / OTHER_PACE) | (ratios >= OTHER_PACE))
    return int(log.train.segment[processes[other[-1]][0]]) + 1 if len(other) else 0


def _processes(log: LogEvidence, lines: Booleans) -> list[Integers]:
    """The rows of these lines, those of each process by themselves."""
    rows = np.flatnonzero(lines)
    return np.split(rows, np.flatnonzero(np.diff(log.train.segment[rows])) + 1)


def step_seconds(log: LogEvidence, tokens_per_step: Fact | None) -> Fact | None:
    """The median step, in seconds."""
    seconds = line_seconds(log, tokens_per_step)
    clean = clean_lines(log, seconds)
    if not clean.any():
        return None
    lines = log.train.line[clean]
    formula = f"median of {len(lines)} lines without evaluations and warm-up, lines {lines[0]} to {lines[-1]}"
    return derived("step_seconds", float(np.median(seconds[clean])), formula, unit="seconds")


def printed_rate(log: LogEvidence) -> Fact | None:
    """The median of the printed tokens per second, over all devices."""
    rate = log.train.tokens_per_second
    usable = np.isfinite(rate) & (np.arange(len(rate)) >= 1)
    usable &= log.train.segment >= segment_of_last_batch(log)
    if not usable.any():
        return None
    lines = log.train.line[usable]
    formula = f"median of {len(lines)} printed rates, lines {lines[0]} to {lines[-1]}"
    return derived("tokens_per_second", float(np.median(rate[usable])), formula, unit="tokens/s")


def timed_tokens(log: LogEvidence) -> Fact | None:
    """Tokens of a step by the printed rate and the printed time of the same lines, over all devices."""
    train = log.train
    clean = clean_lines(log, train.seconds) & np.isfinite(train.tokens_per_second)
    if not clean.any():
        return None
    lines = train.line[clean]
    tokens = float(np.median(train.seconds[clean] * train.tokens_per_second[clean]))
    formula = f"median of the printed tokens a second × time, lines {lines[0]} to {lines[-1]}"
    return derived("timed_tokens_per_step", round(tokens), formula, unit="tokens")


def mfu_seconds(log: LogEvidence, seconds: Fact, mfu: Fact) -> float:
    """The product of a step's time and its MFU, which says how much was computed in a step.

    A running average goes with the median time, as long as steps keep their pace; else with the same average
    of the printed times. Where each line has an MFU of its own, both must come from the same line: on a busy
    machine a quick line's MFU and a median time are of two different steps.
    """
    train = log.train
    clean = clean_lines(log, train.seconds) & np.isfinite(train.mfu)
    if log.format.mfu_of_line:
        return float(np.median(train.seconds[clean] * train.mfu[clean]))
    if clean.sum() < FEWEST_LINES or _keeps_its_pace(train.seconds[clean]):
        return seconds.number * mfu.number
    with np.errstate(divide="ignore"):
        averaged = _running_average(1 / train.seconds, train.segment)
    return float(np.median(train.mfu[clean] / averaged[clean]))


def _keeps_its_pace(seconds: Floats) -> bool:
    quick, slow = np.quantile(seconds, (0.1, 0.9))
    return bool(slow < OTHER_PACE * quick)


def _running_average(values: Floats, segment: Integers) -> Floats:
    """nanoGPT's average of its MFU: each line counts a tenth, the first of a process wholly."""
    averaged, running, process = np.empty_like(values), np.nan, -1
    for row, (value, of) in enumerate(zip(values.tolist(), segment.tolist(), strict=True)):
        fresh = of != process or not np.isfinite(running)
        running = value if fresh else running + (value - running) / 10
        averaged[row], process = running, of
    return averaged


def other_work(log: LogEvidence) -> Fact | None:
    """How many times the work of a last step one of an earlier part holds, where only MFU × time tells.

    The product is in proportion to a step's tokens on each device. A resume on another number of devices
    changes it like another batch does, so it leaves open how many tokens were seen.
    """
    train = log.train
    if says_batches(log) or not len(train):
        return None
    work = train.seconds * train.mfu
    known = clean_lines(log, train.seconds, any_pace=True) & np.isfinite(work) & (work > 0)
    medians = [
        (int(train.line[rows[0]]), float(np.median(work[rows])))
        for rows in _processes(log, known)
        if len(rows) >= FEWEST_LINES
    ]
    for line, median in medians[:-1]:
        ratio = median / medians[-1][1]
        if not 1 / OTHER_WORK < ratio < OTHER_WORK:
            return derived("work_of_a_step", ratio, f"MFU × time from line {line} on, over that of the end")
    return None


def printed_mfu_of(log: LogEvidence) -> Fact | None:
    """The printed MFU where no evaluation has pulled it down: before the first one, else its upper tenth.

    That of a run's first step is of compiling.
    """
    train = log.train
    known = np.isfinite(train.mfu) & (train.mfu > 0) & (train.segment >= segment_of_last_batch(log))
    known &= ~((train.step <= 1) & (np.diff(train.segment, prepend=-1) > 0))
    clean = clean_lines(log, train.seconds)
    if clean.any():
        known &= train.segment >= train.segment[clean][0]
    if not known.any():
        return None
    if log.format.time_includes_evaluation:
        held = np.flatnonzero(np.isin(train.step, log.evals.step) & (train.step > train.step[0]))
        before = known & (np.arange(len(train)) < (held[0] if len(held) else len(train)))
        known = before if before.any() else known
    value = float(np.quantile(train.mfu[known], UNDISTURBED_QUANTILE, method="lower"))
    line = int(train.line[np.flatnonzero(known & (train.mfu == value))[0]])
    return Fact(
        name="printed_mfu",
        value=value,
        text=f"{value * 100:.2f} %",
        origin=Origin.LOGGED,
        reason=f"the printed MFU where no evaluation pulls it down (line {line})",
        unit="fraction",
        source=f"log:{line}",
    )

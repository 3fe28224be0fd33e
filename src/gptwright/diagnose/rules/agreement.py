"""Do log, config and what is stated tell of the same run?"""

import math
import re
from collections.abc import Iterator

import numpy as np

from gptwright.diagnose.machine import memory_fact
from gptwright.diagnose.reading import Reading
from gptwright.diagnose.rule import Rule, Verdict, finding
from gptwright.diagnose.sizes import counted
from gptwright.diagnose.speed import INVERSION_TOLERANCE, contradicts, logged_cut
from gptwright.facts import Fact, logged
from gptwright.findings import Action, Cause, Confidence, Severity, Unknown
from gptwright.hardware.table import DeviceSpec, find_spec

# Drivers keep a part of the memory that is sold: torch reports 2 to 4 % less. A tenth is another card.
MEMORY_TOLERANCE = 0.1
# Printed rates are rounded to a few digits.
RATE_SLACK = 1.02
# What of the peak is printed at least, where the end of the warm-up is in the log, and where it is not and no
# decay has taken more.
PEAK_SEEN, PEAK_MISSED = 0.9, 0.5


def batch_mismatch(reading: Reading) -> Iterator[Verdict]:
    """Tokens per step are stated three times: by the config, by the log's header, and by the speed itself, as
    the printed tokens a second × time, or, where no such rate is printed, MFU × its peak × time / FLOPs per
    token. The first two must be equal, the third within 12 % (the FLOP conventions alone differ by 7 %). An
    MFU beside a rate says nothing of the batch: it hangs on the peak that the trainer believes in. A
    whole-number ratio names the accumulation that really ran. nanoGPT's MFU is for one process, so the
    comparison allows for the devices that are stated. Source: nanoGPT issue 178 (a hidden accumulation of 40
    that looked like a slow card); the inversion reproduces the tokens of five published logs within 2 %.
    """
    configured = reading.speed.configured_tokens_per_step
    printed = reading.settings.logged.get("tokens_per_step") or logged_cut(
        reading.settings, reading.machine.count
    )
    if configured is not None and printed is not None and printed.number != configured.number:
        ratio = printed.number / configured.number
        # The accumulation of a config may be meant for one device or for all of them.
        count = reading.machine.count
        if not any(math.isclose(ratio, times) for times in (count, 1 / count)):
            yield _batch_finding(reading, configured, printed, ratio, Confidence.CERTAIN)
            return
    said, implied = printed or configured, reading.speed.implied_tokens_per_step
    timed = reading.speed.timed_tokens_per_step
    if said is not None and timed is not None and contradicts(timed, said, reading.machine.count):
        yield _batch_finding(reading, said, timed, timed.number / said.number, Confidence.LIKELY)
    if said is None or implied is None:
        return
    ratio = implied.number * reading.machine.count / said.number
    if abs(ratio - 1) <= INVERSION_TOLERANCE:
        return
    whole = round(ratio) if ratio > 1 else 1 / round(1 / ratio)
    if abs(ratio / whole - 1) > INVERSION_TOLERANCE:
        return
    yield _batch_finding(reading, said, implied, ratio, Confidence.LIKELY)


def _batch_finding(reading: Reading, said: Fact, seen: Fact, ratio: float, confidence: Confidence) -> Verdict:
    accumulation = reading.settings.given.get("gradient_accumulation_steps")
    times = f"{ratio:.3g}" if ratio >= 1 else f"1/{1 / ratio:.3g}"
    causes, actions = [], []
    if accumulation is not None and abs(ratio * accumulation.number - 1) <= INVERSION_TOLERANCE:
        causes = [
            Cause("the printed time is that of one micro-batch, not of a step", Confidence.LIKELY),
            Cause("gradient_accumulation_steps was 1", Confidence.POSSIBLE),
        ]
    elif ratio > 1:
        really = round(ratio * (accumulation.number if accumulation is not None else 1))
        causes = [
            Cause(f"gradient_accumulation_steps was {really} (nanoGPT's default is 40)", Confidence.LIKELY),
            Cause("several processes trained together", Confidence.POSSIBLE),
        ]
        actions = [
            Action(
                f"Set the accumulation that ran, {really}, or check that this config is the run's.",
                {"gradient_accumulation_steps": really},
            )
        ]
    return finding(
        "batch-mismatch",
        Severity.WARNING,
        confidence,
        f"The log implies {seen.text} tokens a step, {times} times the {said.text} of the settings"
        f" ({said.reason}).",
        [said, seen, reading.speed.step_seconds, reading.speed.printed_mfu, accumulation],
        causes=causes,
        actions=actions,
    )


def batch_change(reading: Reading) -> Iterator[Verdict]:
    """A run that was resumed with another micro-batch, accumulation or context has steps of two sizes. Each
    process prints its own header, so the tokens of each part are known and are counted piece by piece; speeds
    are those of the last part. Where only the printed MFU × time of a step changes, half as much again or
    more, the batch may have changed or the number of devices, and how many tokens were seen stays open.
    """
    progress = reading.progress
    if progress.other_work is not None:
        yield Unknown(
            "How many tokens were seen?",
            f"the batch of each part of the run: a step held {progress.other_work.number:.2g} times the work"
            f" of the last ones ({progress.other_work.reason})",
        )
    elif reading.log is not None and reading.speed.tokens_per_step is None and progress.last_step is not None:
        yield Unknown(
            "How many tokens were seen?" if progress.tokens_seen is None else "How many tokens has a step?",
            "the tokens of a step: batch_size, gradient_accumulation_steps and block_size of the config, or"
            " the head of the log",
        )
    if len(progress.batches) < 2:
        return
    steps = ", ".join(
        f"{batch.tokens.text} from {reading.at(batch.first_step)} on" for batch in progress.batches
    )
    seen = (
        f" {progress.tokens_seen.text} tokens were seen: {progress.tokens_seen.reason}."
        if progress.tokens_seen
        else ""
    )
    yield finding(
        "batch-change",
        Severity.INFO,
        Confidence.CERTAIN,
        f"The tokens of a step changed where the run was resumed: {steps}.{seen} The same learning rate means"
        " another thing for another batch.",
        [*(batch.tokens for batch in progress.batches), progress.tokens_seen],
    )


def config_mismatch(reading: Reading) -> Iterator[Verdict]:
    """Values that stand both in the log and in the config must be the same: the parameter count (to its
    printed rounding, with or without the position table), vocabulary, context, depth, width, and whether the
    model was compiled. A contradiction means that the config is not this run's. Counts are compared only for
    trainers whose model is GPT-2's.
    """
    in_log, given, shape = reading.settings.logged, reading.settings.given, reading.sizes.shape
    printed = reading.sizes.printed_parameters
    differing: list[tuple[str, Fact, Fact]] = []
    if shape is not None and printed is not None and reading.sizes.parameters is not None:
        own = counted(shape)
        if reading.sizes.parameters.number != own.number:
            differing.append(("parameters", own, printed))
    for name in ("vocab_size", "block_size", "n_layer", "n_head", "n_embd", "learning_rate", "compile"):
        ours, theirs = given.get(name), in_log.get(name)
        if ours is not None and theirs is not None and ours.value not in (theirs.value, "auto", None):
            differing.append((name, ours, theirs))
    differing += _other_rate(reading)
    if not differing:
        return
    text = "; ".join(
        f"{name} is {ours.text} by the config and {theirs.text} in the log"
        for name, ours, theirs in differing
    )
    yield finding(
        "config-mismatch",
        Severity.WARNING,
        Confidence.CERTAIN,
        f"Config and log disagree: {text}.",
        [fact for _, ours, theirs in differing for fact in (ours, theirs)],
        causes=[Cause("the config was changed after the run, or belongs to another", Confidence.LIKELY)],
    )


def _other_rate(reading: Reading) -> list[tuple[str, Fact, Fact]]:
    """A printed learning rate above the config's, or one that never came near it after the warm-up."""
    train, given = reading.train, reading.settings.given.get("learning_rate")
    multiple = reading.log is not None and reading.log.format.prints_rate_multiple
    if train is None or given is None or multiple or not np.isfinite(train.learning_rate).any():
        return []
    row = int(np.nanargmax(train.learning_rate))
    highest = float(train.learning_rate[row])
    warmup = reading.settings.number("warmup_iters")
    warm = warmup is not None and train.step[-1] > 2 * warmup
    # Of a log that begins later the peak may have been before it.
    reached = warmup is not None and train.step[0] <= warmup
    least = given.number * (PEAK_SEEN if reached else _left_of_the_peak(reading, int(train.step[0])))
    too_high, too_low = highest > RATE_SLACK * given.number, warm and RATE_SLACK * highest < least
    if not (too_high or too_low):
        return []
    return [("learning_rate", given, logged("learning_rate", highest, int(train.line[row])))]


def _left_of_the_peak(reading: Reading, step: int) -> float:
    """The least share of the peak that a linear or cosine decay leaves at the first step of a log's part."""
    end = reading.settings.number("lr_decay_iters") or reading.settings.number("max_iters")
    if not end or step >= end:
        return 0.0
    done = step / end
    return min(PEAK_MISSED, PEAK_SEEN * min(1 - done, 0.5 * (1 + math.cos(math.pi * done))))


def device_mismatch(reading: Reading) -> Iterator[Verdict]:
    """The log may name its device, its memory, or print the memory in an out-of-memory message; the stated
    device must be the same card, and as many of them as nanoGPT's header and MFU tell of. Names are compared
    by their rows in the table, so spellings do not matter; memory may fall short of what is sold by the 2 to
    4 % that the driver keeps.
    """
    yield from _other_count(reading)
    stated, printed_name = reading.settings.stated.get("device"), reading.machine.logged_name
    spec = reading.machine.spec
    if stated is None or spec is None:
        return
    if printed_name is not None:
        other = find_spec(str(printed_name.value))
        same = (
            other is None or other.spec.name == spec.name or spec.name in {s.name for s in other.alternatives}
        )
        if not same and other is not None and other.spec.name not in {m.name for m in _alternatives(stated)}:
            yield finding(
                "device-mismatch",
                Severity.WARNING,
                Confidence.CERTAIN,
                f"The log names {printed_name.text}, not the stated {stated.text}.",
                [stated, printed_name],
            )
            return
    printed, sold = reading.settings.logged.get("device_memory_bytes"), memory_fact(spec)
    if printed is None or sold is None:
        return
    sizes = [s.memory_bytes for s in (spec, *_alternatives(stated)) if s.memory_bytes]
    named_size = re.search(r"\d+ ?gb", str(stated.value), re.IGNORECASE)
    if named_size:
        sizes = [int(sold.number)]
    if all(abs(printed.number / size - 1) > MEMORY_TOLERANCE for size in sizes):
        yield finding(
            "device-mismatch",
            Severity.WARNING,
            Confidence.CERTAIN,
            f"The log reports {printed.text} of memory; the stated {stated.text} has {sold.text}.",
            [stated, sold, printed],
        )


def _other_count(reading: Reading) -> Iterator[Verdict]:
    """Another number of devices than the log's own numbers allow."""
    stated, processes = reading.settings.stated.get("device_count"), reading.machine.processes
    if stated is None or processes is None or stated.number == processes.number:
        return
    yield finding(
        "device-mismatch",
        Severity.WARNING,
        Confidence.LIKELY,
        f"{stated.text} {'device is' if stated.number == 1 else 'devices are'} stated; the log's numbers are"
        f" those of {processes.number:.0f} ({processes.reason}).",
        [stated, processes],
    )


def _alternatives(stated: Fact) -> tuple[DeviceSpec, ...]:
    match = find_spec(str(stated.value))
    return match.alternatives if match is not None else ()


RULES = (
    Rule("batch-mismatch", batch_mismatch),
    Rule("batch-change", batch_change),
    Rule("config-mismatch", config_mismatch),
    Rule("device-mismatch", device_mismatch),
)

"""What the guards of a run of ours did, as its own record says."""

from collections import Counter
from collections.abc import Iterator

from gptwright.diagnose.reading import Reading
from gptwright.diagnose.rule import Rule, Verdict, finding
from gptwright.facts import logged
from gptwright.findings import Confidence, Severity
from gptwright.record.evidence import EventKind

# After these the run is no longer the one that its settings describe, or has learned nothing.
SERIOUS = ("rollback", "scaler-collapse", "stuck-loss")
SHOWN = 5


def guard_acted(reading: Reading) -> Iterator[Verdict]:
    """A run of ours records what its guards did: updates refused because the loss or the gradient was no
    number, rollbacks past a stretch of data, steps that stalled, a micro-batch cut finer for lack of memory,
    a damaged checkpoint passed over. One refused update among thousands is the guard at work and harms
    nothing; a rollback, a collapsed float16 scale or a stuck loss is worth a look at the learning rate and
    the data. It fires on those lines alone. Source: docs/reliability.md.
    """
    log = reading.log
    events = [event for event in log.events if event.kind is EventKind.GUARD] if log else []
    if not events:
        return
    deeds = Counter(event.text.partition(":")[0] for event in events)
    serious = any(deed in deeds for deed in SERIOUS)
    counted = ", ".join(f"{deed} {count} time{'s' * (count > 1)}" for deed, count in deeds.items())
    last = events[-1]
    yield finding(
        "guard-acted",
        Severity.WARNING if serious else Severity.INFO,
        Confidence.CERTAIN,
        f"The run's guards acted: {counted}. The last time (line {last.line}): {last.text}.",
        [logged("guard", event.text, event.line) for event in events[-SHOWN:]],
    )


def skipped_steps(reading: Reading) -> frozenset[int]:
    """Steps whose loss was no number and whose update was refused, so that nothing came of it."""
    events = reading.log.events if reading.log is not None else ()
    words = [event.text.split() for event in events if event.kind is EventKind.GUARD]
    return frozenset(
        int(number)
        for deed, *said in words
        if deed == "skipped:" and len(said) > 2 and (number := said[2].rstrip(":")).isdecimal()
    )


RULES = (Rule("guard-acted", guard_acted),)

"""How fast two runs are beside each other: tokens a second, time of a sequence, share of the device.

People read the time of a micro-batch or the MFU as throughput. A micro-batch of 8 sequences in 145 ms is no
little slower than one of 16 in 122 ms but 2.4 times slower, and a wider model does more FLOP/s while it sees
fewer tokens. As with the loss, no single change is credited where several were made that move the speed.
"""

import itertools
from collections.abc import Sequence

from gptwright import units
from gptwright.diagnose.compare.changes import differs
from gptwright.diagnose.reading import Reading
from gptwright.facts import Fact, derived
from gptwright.findings import Confidence, Finding, Severity

# Two times of one step scatter by less.
SAME_PACE = 0.05
# What moves the speed, fields that are one thing together. Length, rates and data do not.
MOVES_SPEED: dict[str, tuple[str, ...]] = {
    "device": ("device", "device_count"),
    "model": ("n_layer", "n_embd", "n_head", "vocab_size", "parameters", "arch"),
    "context": ("block_size",),
    "micro-batch": ("batch_size",),
    "dropout": ("dropout",),
    "dtype": ("dtype",),
    "compilation": ("compile",),
    "optimizer": ("optimizer",),
    "trainer": ("trainer",),
    "torch": ("torch",),
}


def who_is_faster(a: Reading, b: Reading) -> Finding | None:
    """Which run does more tokens a second, and what may be credited; None where nothing tells or both do."""
    rates = _both(a.speed.tokens_per_second, b.speed.tokens_per_second)
    if rates is None or _alike(rates):
        return None
    fast, slow, times = _order(rates)
    shown = " and ".join(f"{rate.number:,.0f} in {name}" for name, rate in zip("ab", rates, strict=True))
    parts, evidence = [f"{fast} trains {times} times as many tokens a second as {slow} ({shown})"], [*rates]
    sizes, shares = _both(a.sizes.parameters, b.sizes.parameters), _both(a.mfu, b.mfu)
    if sizes is not None and not _alike(sizes):
        larger, _, times = _order(sizes)
        parts.append(f"{larger} has {times} times the parameters")
        evidence += sizes
    # A share above the peak is a fault of one of the records, which diagnose names.
    if shares is not None and max(share.number for share in shares) <= 1:
        parts.append(f"their MFU is {_shares(shares, _both(a.machine.peak, b.machine.peak))}")
        evidence += shares
    return Finding(
        id="speed-difference",
        severity=Severity.INFO,
        confidence=Confidence.CERTAIN,
        message=f"{'; '.join(parts)}.{_of_a_sequence(a, b)}{_credit(changed_speed(a, b))}",
        evidence=tuple(
            _named(fact, name) for fact, name in zip(evidence, itertools.cycle("ab"), strict=False)
        ),
    )


def same_pace(a: Reading, b: Reading) -> bool:
    """Whether both are known to do as many tokens a second."""
    rates = _both(a.speed.tokens_per_second, b.speed.tokens_per_second)
    return rates is not None and _alike(rates)


def _shares(shares: tuple[Fact, Fact], peaks: tuple[Fact, Fact] | None) -> str:
    """Both shares; each with what it is a share of where that differs, as on a CPU that had other work."""
    of = ["", ""]
    if peaks is not None and not _alike(peaks):
        of = [f" of {units.flops_rate(peak.number)}" for peak in peaks]
    return " and ".join(units.percent(share.number) + peak for share, peak in zip(shares, of, strict=True))


def changed_speed(a: Reading, b: Reading) -> tuple[str, ...]:
    """What was changed that can move the speed."""
    return tuple(thing for thing, fields in MOVES_SPEED.items() if any(differs(a, b, f) for f in fields))


def _of_a_sequence(a: Reading, b: Reading) -> str:
    """What a sequence takes in each, where micro-batches hold another number of them."""
    contexts = a.settings.number("block_size"), b.settings.number("block_size")
    if not differs(a, b, "batch_size") or contexts[0] is None or contexts[0] != contexts[1]:
        return ""
    rates = (run.speed.tokens_per_second for run in (a, b))
    each = (units.duration(contexts[0] / rate.number) for rate in rates if rate is not None)
    return (
        " Their micro-batches hold different numbers of sequences, so their times say little:"
        f" a sequence takes {' and '.join(each)}."
    )


def _credit(changed: Sequence[str]) -> str:
    if len(changed) < 2:
        return f" Of what moves the speed only the {changed[0]} was changed." if changed else ""
    things = f"{', '.join(changed[:-1])} and {changed[-1]}"
    return f" Of what moves the speed {things} were changed: which did how much takes a run of each."


def _both(a: Fact | None, b: Fact | None) -> tuple[Fact, Fact] | None:
    """Two values above 0; None where one of them is not known."""
    return (a, b) if a is not None and b is not None and min(a.number, b.number) > 0 else None


def _alike(pair: tuple[Fact, Fact]) -> bool:
    return abs(pair[0].number / pair[1].number - 1) <= SAME_PACE


def _order(pair: tuple[Fact, Fact]) -> tuple[str, str, str]:
    """Which run has more, which less, and how many times as much."""
    ratio = pair[0].number / pair[1].number
    return ("a", "b", units.ratio(ratio)) if ratio > 1 else ("b", "a", units.ratio(1 / ratio))


def _named(fact: Fact, run: str) -> Fact:
    return derived(f"{fact.name}_{run}", fact.value, f"of {run}: {fact.reason}", unit=fact.unit)

"""How fast two runs are beside each other: tokens a second, time of a sequence, share of the device.

People read the time of a micro-batch or the MFU as throughput. A micro-batch of 8 sequences in 145 ms is no
little slower than one of 16 in 122 ms but 2.4 times slower, and a wider model does more FLOP/s while it sees
fewer tokens. As with the loss, no single change is credited where several were made that move the speed.
"""

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
    rates = a.speed.tokens_per_second, b.speed.tokens_per_second
    if rates[0] is None or rates[1] is None or not min(rates[0].number, rates[1].number) > 0:
        return None
    times = rates[0].number / rates[1].number
    if abs(times - 1) <= SAME_PACE:
        return None
    fast, slow = ("a", "b") if times > 1 else ("b", "a")
    ratio = max(times, 1 / times)
    sizes = a.sizes.parameters, b.sizes.parameters
    evidence = [_named(rate, name) for rate, name in zip(rates, "ab", strict=True) if rate is not None]
    text = f"{fast} trains {units.ratio(ratio)} times as many tokens a second as {slow}"
    text += f" ({rates[0].number:,.0f} in a, {rates[1].number:,.0f} in b)"
    if sizes[0] is not None and sizes[1] is not None and _differ(sizes[0], sizes[1]):
        larger = "a" if sizes[0].number > sizes[1].number else "b"
        bigger = max(sizes[0].number, sizes[1].number) / min(sizes[0].number, sizes[1].number)
        text += f"; {larger} has {units.ratio(bigger)} times the parameters"
        evidence += [_named(size, name) for size, name in zip(sizes, "ab", strict=True) if size is not None]
    shares = a.mfu, b.mfu
    if shares[0] is not None and shares[1] is not None and max(shares[0].number, shares[1].number) <= 1:
        shown = (units.percent(share.number) for share in shares if share is not None)
        text += f"; their shares of the device's peak are {' and '.join(shown)}"
        evidence += [
            _named(share, name) for share, name in zip(shares, "ab", strict=True) if share is not None
        ]
    return Finding(
        id="speed-difference",
        severity=Severity.INFO,
        confidence=Confidence.CERTAIN,
        message=f"{text}.{_of_a_sequence(a, b)}{_credit(changed_speed(a, b))}",
        evidence=tuple(evidence),
    )


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


def _differ(a: Fact, b: Fact) -> bool:
    return abs(a.number / b.number - 1) > SAME_PACE


def _named(fact: Fact, run: str) -> Fact:
    return derived(f"{fact.name}_{run}", fact.value, f"of {run}: {fact.reason}", unit=fact.unit)

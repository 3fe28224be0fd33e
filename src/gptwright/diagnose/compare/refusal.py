"""That two runs cannot be compared: why, what would make them so, and what people blame meanwhile."""

from collections.abc import Sequence

from gptwright.arithmetic.reference import dataset_family
from gptwright.diagnose.compare.changes import changed_things, idle_changes, same_corpus, setting
from gptwright.diagnose.compare.comparable import NO_STEPS, NOTHING_IN_COMMON, STEP_NOT_KNOWN
from gptwright.diagnose.reading import Reading
from gptwright.diagnose.series import val_loss
from gptwright.findings import Action, Confidence, Finding, Severity

# What people blame for another loss and what moves only the speed.
BLAMED = ("device", "device_count", "dtype", "compile", "torch")
# One text, which nanoGPT's scripts cut into characters and into GPT-2's tokens, at the same place.
SHAKESPEARE = frozenset(("shakespeare", "shakespeare-char"))
# Large vocabularies over English come to some 4.7 bytes a token.
MOST_CHARACTERS_A_TOKEN = 8


def refusal(a: Reading, b: Reading, reasons: Sequence[str]) -> Finding:
    """That the two cannot be compared, and why."""
    named = ("dataset", "vocab_size", "val_tokens")
    apart = any(reason.endswith(NOTHING_IN_COMMON) for reason in reasons)
    further = (_what_may_differ(a, b) if apart else _of_the_whole_split(a, b)) + not_the_cause(a, b)
    return Finding(
        id="not-comparable",
        severity=Severity.WARNING,
        confidence=Confidence.CERTAIN,
        message=f"Nothing can be said about who is ahead: {'; '.join(reasons)}.{further}",
        evidence=tuple(fact for reading in (a, b) for fact in reading.settings.facts(*named)),
        actions=(Action(_remedy(reasons)),),
    )


def not_the_cause(a: Reading, b: Reading) -> str:
    """That the device is no reason for another loss: people blame it first."""
    idle = [field for field in idle_changes(a, b) if field in BLAMED]
    return f" Another {' or '.join(idle)} leaves a loss as it is." if idle else ""


def _of_the_whole_split(a: Reading, b: Reading) -> str:
    """The loss of all validation text, which depends on no vocabulary, where both may have one text."""
    curves, sizes = (val_loss(a), val_loss(b)), [run.settings.number("val_tokens") for run in (a, b)]
    rows = [fact.value for fact in (a.vocab_size, b.vocab_size) if fact is not None]
    names = [setting(run, "dataset") for run in (a, b)]
    if len(rows) < 2 or None in names or not all(len(curve) for curve in curves):
        return ""
    one_text = same_corpus(*map(str, names)) or {dataset_family(str(name)) for name in names} == SHAKESPEARE
    (ours, theirs), (mine, yours) = (curve.value.min() for curve in curves), sizes
    if not one_text or mine is None or yours is None or rows[0] == rows[1]:
        return ""
    # One tokenizer makes as many tokens of one text, and none makes so many times fewer than another.
    if mine == yours or max(mine, yours) > MOST_CHARACTERS_A_TOKEN * min(mine, yours):
        return ""
    nats = mine * ours, yours * theirs
    fewer = "a" if nats[0] < nats[1] else "b"
    return (
        " If both validate on the same text, what compares is the loss of all of it: the best of a,"
        f" {ours:.4f} over {mine:,.0f} tokens, is {nats[0]:,.0f} nats and that of b, {theirs:.4f} over"
        f" {yours:,.0f}, is {nats[1]:,.0f}: {fewer} needs {1 - min(nats) / max(nats):.0%} less."
    )


def _what_may_differ(a: Reading, b: Reading) -> str:
    """What was changed that can move a loss."""
    changed = changed_things(a, b)
    return f" What differs and can move a loss: {', '.join(changed)}." if changed else ""


def _remedy(reasons: Sequence[str]) -> str:
    """What would make two runs comparable: more of them where their losses are the same quantity."""
    if any(reason.endswith(NOTHING_IN_COMMON) for reason in reasons):
        return "Let the shorter run go on to an evaluation that the other has passed, or evaluate both anew."
    if any(reason.endswith(STEP_NOT_KNOWN) for reason in reasons):
        return "Give the config of that run, or the head of its log, which says how many tokens a step has."
    if any(reason.endswith(NO_STEPS) for reason in reasons):
        return (
            "Give a record of each that has its steps; of Hugging Face's Trainer that is trainer_state.json."
        )
    return "Evaluate both models on the same text, in bits per byte."

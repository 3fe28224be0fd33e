"""The tokens of a step where a run was resumed with another batch: each part of the log has its own.

A header is printed anew by each process, so what stands in front of a part's first row is what that part ran
with. Tokens are then counted piece by piece, and speeds are those of the last piece.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gptwright import units
from gptwright.facts import Fact, derived
from gptwright.record.evidence import LogEvidence

if TYPE_CHECKING:
    from gptwright.record.arrays import Floats

# What a step's tokens are the product of, where the product itself is not printed.
FACTORS = (
    ("micro_batch", "batch_size"),
    ("gradient_accumulation_steps",),
    ("block_size",),
    ("world_size",),
)


@dataclass(frozen=True, slots=True)
class Batch:
    """One part of a run.

    Attributes:
        first_step: where it begins.
        tokens: of each of its steps.
    """

    first_step: int
    tokens: Fact


@dataclass(frozen=True, slots=True)
class _Part:
    """What one process of a log prints of its batch: facts by name, and its first row."""

    segment: int
    line: int
    step: int
    said: Mapping[str, Fact]


def batches_of(log: LogEvidence | None, last: Fact | None) -> tuple[Batch, ...]:
    """The parts of a run by their batch, in order; one where nothing changed, none where nothing is known.

    Args:
        log: of the run.
        last: tokens of a step at its end.
    """
    if last is None:
        return ()
    parts = _parts(log) if log is not None else []
    batches: list[Batch] = []
    for part in parts:
        tokens = _tokens(part, parts[-1], last)
        # A run that went on from an older checkpoint left what followed that behind.
        batches = [batch for batch in batches if batch.first_step < part.step]
        if not batches or batches[-1].tokens.value != tokens.value:
            batches.append(Batch(part.step if batches else 0, tokens))
    return tuple(batches) or (Batch(0, last),)


def says_batches(log: LogEvidence) -> bool:
    """Whether headers of a log say the batch of more than one process."""
    return len(log.batches) > 1


def segment_of_last_batch(log: LogEvidence) -> int:
    """The first segment that has the batch with which the log ends."""
    parts = _parts(log)
    first = 0
    for part in parts:
        if _ratio(part, parts[-1]) != 1:
            first = part.segment + 1
    return first


def _parts(log: LogEvidence) -> list[_Part]:
    """The processes of a log, where headers say the batch of more than one."""
    return list(_told(log)) if says_batches(log) else []


def _told(log: LogEvidence) -> Iterator[_Part]:
    import numpy as np

    lines = log.moment(np.concatenate([log.train.line, log.evals.line]))
    order = np.argsort(lines, kind="stable")
    lines = lines[order]
    steps = np.concatenate([log.train.step, log.evals.step])[order]
    segments = np.concatenate([log.train.segment, log.evals.segment])[order]
    _, firsts = np.unique(segments, return_index=True)
    told = sorted(log.batches, key=lambda fact: log.moment(fact.line))
    for row in firsts:
        said = {fact.name: fact for fact in told if log.moment(fact.line) < lines[row]}
        yield _Part(int(segments[row]), abs(int(lines[row])), int(steps[row]), said)


def _ratio(part: _Part, last: _Part) -> float:
    """A step's tokens in a part over those at the end."""
    name = "tokens_per_step"
    if name in part.said and name in last.said:
        return part.said[name].number / last.said[name].number
    ratio = 1.0
    for names in FACTORS:
        both = next((n for n in names if n in part.said and n in last.said), None)
        ratio *= part.said[both].number / last.said[both].number if both is not None else 1.0
    return ratio


def _tokens(part: _Part, last: _Part, at_end: Fact) -> Fact:
    ratio = _ratio(part, last)
    printed = part.said.get("tokens_per_step")
    if ratio == 1:
        return at_end
    if printed is not None:
        return printed
    formula = f"{ratio:g} × {at_end.text}, by the batch printed before line {part.line}"
    return derived("tokens_per_step", round(at_end.number * ratio), formula, unit="tokens")


def tokens_at(batches: Sequence[Batch], step: float) -> float:
    """Tokens that were seen after so many steps."""
    ends = [*(batch.first_step for batch in batches[1:]), step]
    return sum(
        max(0.0, min(end, step) - batch.first_step) * batch.tokens.number
        for batch, end in zip(batches, ends, strict=True)
    )


def in_words(batches: Sequence[Batch], step: float) -> str:
    """How the tokens up to a step were counted."""
    ends = [*(batch.first_step for batch in batches[1:]), step]
    pieces = [
        f"{end - batch.first_step:,.0f} steps × {batch.tokens.text} tokens"
        for batch, end in zip(batches, ends, strict=True)
        if batch.first_step < end
    ]
    return " + ".join(pieces) or f"0 steps × {units.count(0)}"


def amounts(batches: Sequence[Batch], steps: "Floats") -> "Floats":
    """Tokens that were seen at each of these steps."""
    import numpy as np

    ends = [*(batch.first_step for batch in batches[1:]), np.inf]
    seen = np.zeros(len(steps))
    for batch, end in zip(batches, ends, strict=True):
        seen += np.maximum(0.0, np.minimum(end, steps) - batch.first_step) * batch.tokens.number
    return seen

"""What a comparison says: the settings that differ, both losses at equal cost, and who is ahead."""

from dataclasses import dataclass
from enum import StrEnum

from gptwright.facts import Value
from gptwright.findings import Finding

# 1.96 standard errors on either side hold 95 % of differences that are noise alone.
SIGNIFICANT = 1.96


class Verdict(StrEnum):
    """Who is ahead."""

    A_BETTER = "a-better"
    B_BETTER = "b-better"
    WITHIN_NOISE = "within-noise"
    CONFOUNDED = "confounded"
    NOT_COMPARABLE = "not-comparable"


@dataclass(frozen=True, slots=True)
class Difference:
    """A setting that the two runs do not share."""

    field: str
    a: Value
    b: Value


@dataclass(frozen=True, slots=True)
class Point:
    """Both losses, in nats or bits a byte, after as much of something: tokens, seconds or FLOPs."""

    at: float
    a: float
    b: float
    standard_error: float

    @property
    def delta(self) -> float:
        """b less a; negative where b is ahead."""
        return self.b - self.a

    @property
    def significant(self) -> bool:
        """Whether noise alone would give so much in fewer than one pair of runs in twenty."""
        return abs(self.delta) > SIGNIFICANT * self.standard_error


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two runs side by side.

    Attributes:
        differences: settings that differ.
        comparable: whether their losses are the same quantity.
        reasons: why not, or what to keep in mind.
        at_equal_tokens: points by tokens seen, or by what else counts.
        counts: what these are counted in: tokens, or where neither run tells its tokens per step what the
            rows of their logs count, which is steps, lines or epochs.
        at_equal_seconds: points by training time.
        at_equal_flops: points by FLOPs spent.
        verdict: who is ahead.
        findings: the same in words, with evidence.
    """

    differences: tuple[Difference, ...]
    comparable: bool
    reasons: tuple[str, ...]
    at_equal_tokens: tuple[Point, ...]
    counts: str
    at_equal_seconds: tuple[Point, ...]
    at_equal_flops: tuple[Point, ...]
    verdict: Verdict
    findings: tuple[Finding, ...]

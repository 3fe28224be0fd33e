"""Compares two runs: what differs, whether they can be compared, the points, the verdict."""

from gptwright.diagnose.compare.changes import changed_things, differences
from gptwright.diagnose.compare.comparable import counted_in, remarks, why_apart, why_not
from gptwright.diagnose.compare.decay import with_schedule_in_tokens
from gptwright.diagnose.compare.late import late_difference
from gptwright.diagnose.compare.outcome import Comparison, Verdict
from gptwright.diagnose.compare.pace import who_is_faster
from gptwright.diagnose.compare.points import points_by_flops, points_by_seconds, points_by_tokens
from gptwright.diagnose.compare.refusal import refusal
from gptwright.diagnose.compare.verdict import (
    SideBySide,
    failure_of,
    verdict_of,
    who_is_ahead,
)
from gptwright.diagnose.reading import Reading


def compare(a: Reading, b: Reading) -> Comparison:
    """Compares two runs."""
    reasons = why_not(a, b)
    if reasons:
        return _not_comparable(a, b, reasons)
    by_tokens = points_by_tokens(a, b)
    if not by_tokens:
        return _not_comparable(a, b, (why_apart(a, b),))
    late = late_difference(a, b)
    decisive = late.point if late is not None else by_tokens[-1]
    both = SideBySide(
        runs=(a, b),
        by_tokens=by_tokens,
        by_seconds=points_by_seconds(a, b),
        late=late,
        changed=with_schedule_in_tokens(changed_things(a, b), a, b, decisive),
        failed=(failure_of("a", a), failure_of("b", b)),
    )
    verdict = verdict_of(both)
    told = (*both.failed, who_is_ahead(both, verdict), who_is_faster(a, b))
    return Comparison(
        differences=differences(a, b),
        comparable=True,
        reasons=remarks(a, b),
        at_equal_tokens=by_tokens,
        counts=counted_in(a, b),
        at_equal_seconds=tuple(both.by_seconds),
        at_equal_flops=points_by_flops(a, b),
        verdict=verdict,
        findings=tuple(found for found in told if found is not None),
    )


def _not_comparable(a: Reading, b: Reading, reasons: tuple[str, ...]) -> Comparison:
    return Comparison(
        differences=differences(a, b),
        comparable=False,
        reasons=reasons,
        at_equal_tokens=(),
        counts=counted_in(a, b),
        at_equal_seconds=(),
        at_equal_flops=(),
        verdict=Verdict.NOT_COMPARABLE,
        findings=tuple(found for found in (refusal(a, b, reasons), who_is_faster(a, b)) if found is not None),
    )

"""The schedule that comes with another batch: as many steps of it are other tokens.

Who changes nothing but the batch has left the schedule as it was in steps. At equal tokens, where losses are
held against each other, one run's learning rate has then fallen further, and that alone takes off up to 0.15
nats: two things differ, and neither may be credited. Over as many tokens a schedule is the same, whatever its
steps.
"""

from collections.abc import Sequence

import numpy as np

from gptwright.arithmetic.trend.fit import ANNEAL
from gptwright.diagnose.compare.changes import BATCH
from gptwright.diagnose.compare.outcome import Point
from gptwright.diagnose.forecast import lr_fractions
from gptwright.diagnose.reading import Reading

SCHEDULE_IN_TOKENS = "schedule in tokens"


def with_schedule_in_tokens(changed: Sequence[str], a: Reading, b: Reading, point: Point) -> tuple[str, ...]:
    """What was changed, and the schedule if another batch has stretched it by more than the noise hides.

    Args:
        changed: what the settings say was changed.
        a: one run.
        b: the other.
        point: what the verdict rests on, at equal tokens.
    """
    if BATCH not in changed or "schedule" in changed:
        return tuple(changed)
    shares = _share(a, point.at), _share(b, point.at)
    if shares[0] is None or shares[1] is None:
        return tuple(changed)
    apart = ANNEAL * abs(shares[0] - shares[1])
    return (*changed, SCHEDULE_IN_TOKENS) if apart > point.standard_error else tuple(changed)


def _share(reading: Reading, tokens: float) -> float | None:
    """The learning rate after so many tokens as a share of its peak; None where it is not known."""
    each = reading.speed.tokens_per_step
    if each is None or len(reading.progress.batches) != 1:
        return None
    fractions = lr_fractions(reading, np.array([round(tokens / each.number)]))
    return float(fractions[0]) if fractions is not None else None

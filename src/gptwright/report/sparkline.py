"""A curve as one line of text."""

import itertools
from collections.abc import Sequence

BARS = "▁▂▃▄▅▆▇█"
# Where the terminal's encoding has no block elements: heights that rise with the ink.
ASCII_BARS = "_.-~=+*#"


def sparkline(values: Sequence[float], width: int, *, ascii_only: bool = False) -> str:
    """The values in at most `width` characters, the highest as a full bar.

    Values that share a character are averaged. The scale ends at the 95th hundredth of the values, so that
    the fall of the first steps does not flatten all that follows.
    """
    if not values or width < 1:
        return ""
    cells = min(width, len(values))
    edges = [round(cell * len(values) / cells) for cell in range(cells + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in itertools.pairwise(edges)]
    low = min(means)
    high = sorted(means)[int(0.95 * (len(means) - 1))]
    bars = ASCII_BARS if ascii_only else BARS
    scale = (len(bars) - 1) / (high - low) if high > low else 0.0
    return "".join(bars[min(len(bars) - 1, round((mean - low) * scale))] for mean in means)

"""Two runs side by side: first what is not held fixed, then who is ahead, and by how much against the noise.

A difference is credited to a change only when exactly one thing that can move the loss was changed. Losses
over different vocabularies or corpora are different quantities, and nothing is said about who is ahead.
Points are compared at equal tokens, equal seconds and equal FLOPs; one run's curve is interpolated between
its evaluations, never continued beyond them.
"""

from gptwright.diagnose.compare.outcome import Comparison, Difference, Point, Verdict
from gptwright.diagnose.compare.runs import compare

__all__ = ["Comparison", "Difference", "Point", "Verdict", "compare"]

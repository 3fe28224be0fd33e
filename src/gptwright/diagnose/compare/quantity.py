"""Signs in the losses themselves that two runs do not print the same quantity, whatever their settings say.

Fresh weights guess: both runs begin near ln(vocabulary), or one of them prints something else. And on text
that was seen once at most nothing is memorized: what validation is above or below training is then the
difference of two texts, which is the same for any two models that were evaluated on them.
"""

import math

from gptwright.diagnose.compare.changes import differs
from gptwright.diagnose.reading import Reading
from gptwright.diagnose.rules.evaluations import late_gap
from gptwright.diagnose.rules.uniform import KNOWS_A_LANGUAGE
from gptwright.diagnose.scale import first_loss, other_unit, uniform_loss

# On OpenWebText the gaps of the four sizes of GPT-2 are from -0.02 to +0.01 (nanoGPT's README).
SAME_GAP = 0.1
# So many standard errors of the two gaps leave no doubt.
CERTAIN = 4


def other_quantity(a: Reading, b: Reading) -> str:
    """Why the losses of two runs are not of one kind, as far as they show it; empty where they are."""
    return _other_unit(a, b) or _other_start(a, b) or _other_texts(a, b)


def _other_unit(a: Reading, b: Reading) -> str:
    """That one of them prints a perplexity, or bits."""
    units = [other_unit(run) for run in (a, b)]
    if units[0] == units[1] or None in (first_loss(a), first_loss(b)):
        return ""
    said = [f"{name} prints {unit or 'nats'}" for name, unit in zip("ab", units, strict=True)]
    return f"{' and '.join(said)}, as their first losses show"


def _other_start(a: Reading, b: Reading) -> str:
    """That one of two runs that are told to be fresh begins far below guessing, and the other does not."""
    starts = [(first_loss(run), uniform_loss(run)) for run in (a, b)]
    below = [
        (first, uniform, first.number < KNOWS_A_LANGUAGE * uniform.number)
        for first, uniform in starts
        if first is not None and uniform is not None
    ]
    if len(below) < 2 or below[0][2] == below[1][2]:
        return ""
    low = 0 if below[0][2] else 1
    first, uniform, _ = below[low]
    return (
        f"{'ab'[low]} begins at {first.text} and {'ba'[low]} at {below[1 - low][0].text}, where fresh weights"
        f" begin at {uniform.text}: its weights were trained before, or its loss is divided"
    )


def _other_texts(a: Reading, b: Reading) -> str:
    """That validation lies elsewhere beside training in one of them, where neither can have memorized."""
    passes = [run.progress.epochs for run in (a, b)]
    gaps = [late_gap(run) for run in (a, b)]
    ours, theirs = gaps
    if ours is None or theirs is None or differs(a, b, "train_tokens"):
        return ""
    if not all(each is not None and each.number <= 1 for each in passes):
        return ""
    if abs(ours.mean - theirs.mean) <= max(SAME_GAP, CERTAIN * math.hypot(ours.error, theirs.error)):
        return ""
    return (
        f"validation less training is {ours.mean:+.2f} in a and {theirs.mean:+.2f} in b, both within one"
        " pass: they are not evaluated on the same texts"
    )

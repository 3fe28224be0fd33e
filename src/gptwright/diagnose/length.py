"""How long a run should be: compute-optimal, unless the data or the device cannot carry that.

20 tokens per parameter are an answer only where the text is there: on a megabyte of characters they are
hundreds of passes, and the advice would be worse than the fault.
"""

import math

from gptwright import units
from gptwright.arithmetic.scaling import MOST_PASSES, TOKENS_PER_PARAMETER, value_of_next_pass
from gptwright.diagnose.reading import Reading
from gptwright.findings import Action

# As many steps as are planned, within this, are no other length.
SAME_LENGTH = 1.1
# What a run that is long enough still needs, to let its rate decay: speedruns take the last 21 to 30 %.
LEFT_TO_DECAY = 0.25


def sensible_length(
    reading: Reading, *, longer: bool = False, seconds_at_most: float = math.inf
) -> list[Action]:
    """What to plan instead; empty where no other length is better.

    Args:
        reading: the run.
        longer: whether the run is too short, so that only more steps are an answer.
        seconds_at_most: a length that takes more is none.
    """
    parameters, per_step = reading.sizes.parameters, reading.speed.tokens_per_step
    if parameters is None or per_step is None or not per_step.number:
        return []
    best = TOKENS_PER_PARAMETER
    tokens, unique = best.likely * parameters.number, reading.settings.get("train_tokens")
    text = f"{best.likely:.0f} tokens per parameter"
    passes = tokens / unique.number if unique is not None else 0.0
    too_often = unique is not None and passes > MOST_PASSES
    if too_often and unique is not None:
        tokens = MOST_PASSES * unique.number
        text = (
            f"{MOST_PASSES} passes over the data; the next is worth {value_of_next_pass(MOST_PASSES):.1f} of"
            " a fresh one, so go on only while validation falls"
        )
    steps = max(1, round(tokens / per_step.number))
    planned, last = reading.progress.planned_steps, reading.progress.last_step
    if longer:
        made = max(fact.number for fact in (planned, last) if fact is not None) if planned or last else 0
        if steps <= SAME_LENGTH * made:
            return [_more_text(passes)] if too_often else []
    elif planned is not None and steps > planned.number / SAME_LENGTH:
        return [_smaller_model()] if not too_often else []
    if not longer and planned is not None and last is not None:
        soon = round(last.number * (1 + LEFT_TO_DECAY))
        if SAME_LENGTH * steps < last.number and soon < planned.number:
            passed = f"It has passed the {steps:,} steps that are {text}: let the rate decay to its end soon."
            return [Action(passed, {"max_iters": soon, "lr_decay_iters": soon})]
    seconds = _seconds_per_step(reading)
    if seconds is not None and steps * seconds > seconds_at_most:
        return [_smaller_model()]
    pace = f", {units.duration(steps * seconds)} at this speed," if seconds is not None else ""
    settings = {"max_iters": steps, "lr_decay_iters": steps, "warmup_iters": max(1, steps // 50)}
    return [Action(f"{steps:,} steps{pace} are {text}.", settings)]


def _seconds_per_step(reading: Reading) -> float | None:
    if reading.speed.step_seconds is not None:
        return reading.speed.step_seconds.number
    seconds, planned = reading.planned_seconds, reading.progress.planned_steps
    return seconds.number / planned.number if seconds is not None and planned is not None else None


def _smaller_model() -> Action:
    return Action(
        "Take a smaller model: gptwright plan --hours 24 --device NAME chooses the one that this device"
        " trains best in a day."
    )


def _more_text(passes: float) -> Action:
    return Action(
        f"Add text or take a smaller model: {TOKENS_PER_PARAMETER.likely:.0f} tokens per parameter would be"
        f" {passes:,.0f} passes over this data."
    )

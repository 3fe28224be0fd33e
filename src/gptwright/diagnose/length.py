"""How long a run should be: compute-optimal, unless the data or the device cannot carry that.

20 tokens per parameter are an answer only where the text is there: on a megabyte of characters they are
hundreds of passes, and the advice would be worse than the fault.
"""

from dataclasses import dataclass

from gptwright import units
from gptwright.arithmetic.scaling import MOST_PASSES, TOKENS_PER_PARAMETER, value_of_next_pass
from gptwright.diagnose.reading import Reading
from gptwright.findings import Action

# As many steps as are planned, within this, are no other length.
SAME_LENGTH = 1.1
# What a run that is long enough still needs, to let its rate decay: speedruns take the last 21 to 30 %.
LEFT_TO_DECAY = 0.25


@dataclass(frozen=True, slots=True)
class _Goal:
    """The length that suits a run's size and data.

    Attributes:
        steps: at the run's own tokens a step.
        text: what they are, in words.
        passes: over the data that the compute-optimal tokens would be; 0 where the data is not known.
    """

    steps: int
    text: str
    passes: float

    @property
    def lacks_text(self) -> bool:
        """Whether the data is too short for the compute-optimal tokens, so that it sets the length."""
        return self.passes > MOST_PASSES


def sensible_length(reading: Reading, *, seconds_at_most: float) -> list[Action]:
    """What to plan in place of a plan that is too long; empty where no other length is better.

    Args:
        reading: the run.
        seconds_at_most: a length that takes more is none.
    """
    goal, planned, last = _goal(reading), reading.progress.planned_steps, reading.progress.last_step
    if goal is None:
        return []
    if planned is not None and goal.steps > planned.number / SAME_LENGTH:
        return [] if goal.lacks_text else [_smaller_model()]
    if planned is not None and last is not None:
        soon = round(last.number * (1 + LEFT_TO_DECAY))
        if SAME_LENGTH * goal.steps < last.number and soon < planned.number:
            passed = f"It has passed the {goal.steps:,} steps that are {goal.text}:"
            settings = {"max_iters": soon, "lr_decay_iters": soon}
            return [Action(f"{passed} let the rate decay to its end soon.", settings)]
    seconds = _seconds_per_step(reading)
    if seconds is not None and goal.steps * seconds > seconds_at_most:
        return [_smaller_model()]
    return [_of_length(goal, seconds)]


def longer_run(reading: Reading) -> list[Action]:
    """What to plan in place of a run that is too short; empty where more steps are no answer."""
    goal = _goal(reading)
    if goal is None:
        return []
    known = (reading.progress.planned_steps, reading.progress.last_step)
    made = max((fact.number for fact in known if fact is not None), default=0)
    if goal.steps <= SAME_LENGTH * made:
        return [_more_text(goal.passes)] if goal.lacks_text else []
    return [_of_length(goal, _seconds_per_step(reading))]


def _goal(reading: Reading) -> _Goal | None:
    parameters, per_step = reading.sizes.parameters, reading.speed.tokens_per_step
    if parameters is None or per_step is None or not per_step.number:
        return None
    best, unique = TOKENS_PER_PARAMETER.likely, reading.settings.get("train_tokens")
    tokens, text = best * parameters.number, f"{best:.0f} tokens per parameter"
    passes = tokens / unique.number if unique is not None else 0.0
    if unique is not None and passes > MOST_PASSES:
        tokens = MOST_PASSES * unique.number
        text = (
            f"{MOST_PASSES} passes over the data; the next is worth {value_of_next_pass(MOST_PASSES):.1f} of"
            " a fresh one, so go on only while validation falls"
        )
    return _Goal(max(1, round(tokens / per_step.number)), text, passes)


def _of_length(goal: _Goal, seconds_per_step: float | None) -> Action:
    pace = ""
    if seconds_per_step is not None:
        pace = f", {units.duration(goal.steps * seconds_per_step)} at this speed,"
    steps = goal.steps
    settings = {"max_iters": steps, "lr_decay_iters": steps, "warmup_iters": max(1, steps // 50)}
    return Action(f"{steps:,} steps{pace} are {goal.text}.", settings)


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

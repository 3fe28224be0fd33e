"""Micro-batch × accumulation: the same tokens per step cut so that it fits, exactly.

One step's batch does not depend on how it is cut, so the largest micro-batch that fits and divides it is the
one to take: it fills the device best and changes nothing else.
"""

from dataclasses import replace

from gptwright.config.schema import TrainConfig
from gptwright.errors import ConfigError
from gptwright.plan.plan import Plan


def divisors(number: int) -> list[int]:
    """All divisors, ascending."""
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return sorted({*small, *(number // d for d in small)})


def cuts_that_fit(plan: Plan) -> list[tuple[int, int]]:
    """Every micro-batch that fits, ascending, with the accumulation that keeps the plan's tokens per step.

    Empty where the device's memory is not known, or not even one sequence fits.
    """
    if plan.largest_micro_batch is None:
        return []
    sequences = plan.config.sequences_per_step
    count = plan.device.count
    # Each device takes whole micro-batches, so the cut is made in one device's share.
    share = sequences // count if sequences % count == 0 else sequences
    return [(d, sequences // d) for d in divisors(share) if d <= plan.largest_micro_batch]


def same_step(plan: Plan) -> tuple[int, int] | None:
    """The largest micro-batch that fits, with the accumulation that keeps the plan's tokens per step exactly.

    None where the device's memory is not known, or not even one sequence fits.
    """
    return max(cuts_that_fit(plan), default=None)


def fit(plan: Plan) -> TrainConfig:
    """The config with its batch cut to fit the device, at the same tokens per step.

    Raises:
        ConfigError: the device's memory is not known, or the model does not fit at all.
    """
    cut = same_step(plan)
    if cut is None:
        problem = (
            "not even a micro-batch of 1 fits this device"
            if plan.largest_micro_batch == 0
            else "this device's memory is not known"
        )
        raise ConfigError(
            f"--fit cannot choose a micro-batch: {problem}",
            why=f"the device is {plan.device.name.text}",
            fix="name a device of the table with --device, or take a smaller model or block_size",
        )
    return replace(plan.config, batch_size=cut[0], gradient_accumulation_steps=cut[1])

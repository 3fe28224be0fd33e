"""Other cuts of the same step: micro-batches that fit the run's device, at the same tokens per step."""

from gptwright.arithmetic.memory import largest_micro_batch, usable_bytes
from gptwright.arithmetic.step import Step
from gptwright.diagnose.machine import memory_fact
from gptwright.diagnose.reading import Reading
from gptwright.facts import Fact


def device_memory(reading: Reading) -> Fact | None:
    """The memory of one device: as the log prints it, else as it is sold."""
    spec = reading.machine.spec
    return reading.settings.logged.get("device_memory_bytes") or (memory_fact(spec) if spec else None)


def _available_bytes(reading: Reading) -> int | None:
    """What a process could have of that memory; a log prints what the driver reports."""
    printed, spec = reading.settings.logged.get("device_memory_bytes"), reading.machine.spec
    if printed is not None:
        return int(printed.number)
    return spec.available_bytes if spec is not None else None


def most_that_fits(reading: Reading, *, compiled: bool) -> int | None:
    """The largest micro-batch that fits the device; None where model, device or dtype are not known."""
    shape, dtype, available = reading.sizes.shape, reading.machine.dtype, _available_bytes(reading)
    if shape is None or dtype is None or available is None:
        return None
    accumulation = reading.settings.integer("gradient_accumulation_steps") or 1
    step = Step(
        shape=shape,
        micro_batch=1,
        dtype=dtype,
        compiled=compiled,
        accumulation=max(2, accumulation),
        keeps_logits=reading.log is not None and reading.log.format.name == "nanoGPT",
    )
    return largest_micro_batch(step, usable_bytes(available))


def cut_of(sequences: int, *, at_most: int) -> int:
    """The largest micro-batch up to `at_most` that divides a step's sequences; 0 if none does."""
    return max((n for n in range(1, min(at_most, sequences) + 1) if sequences % n == 0), default=0)

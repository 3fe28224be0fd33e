"""The numbers of a run that are known, for the terminal and for pages, which need no terminal's library."""

from gptwright.diagnose.reading import Reading
from gptwright.diagnose.series import eval_train_loss, train_loss, val_loss
from gptwright.facts import Fact


def run_facts(reading: Reading) -> list[Fact]:
    """The numbers of a run that are known, in reading order."""
    speed, progress = reading.speed, reading.progress
    facts: list[Fact | None] = [
        reading.sizes.parameters,
        progress.last_step,
        speed.tokens_per_step,
        progress.tokens_seen,
        progress.tokens_per_parameter,
        progress.epochs,
        reading.machine.name,
        reading.machine.processes,
        speed.step_seconds,
        speed.tokens_per_second,
        speed.achieved_flops,
        reading.machine.peak,
        reading.mfu,
    ]
    for series in (train_loss(reading), eval_train_loss(reading), val_loss(reading)):
        if len(series):
            facts.append(series.fact(len(series) - 1))
    return [fact for fact in facts if fact is not None]

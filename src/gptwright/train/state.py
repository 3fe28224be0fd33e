"""What changes while a run trains, besides weights and optimizer: small numbers that a checkpoint holds as
JSON, and from which the rest of the run follows."""

import math
from dataclasses import dataclass, field


@dataclass(slots=True, kw_only=True)
class TrainState:
    """Where a run is.

    Attributes:
        step: updates done, refused ones included.
        best_val_loss: lowest validation loss so far; None before the first evaluation.
        best_step: where it was.
        last_eval_step: the latest step that was evaluated; None before the first.
        pending_losses: losses of steps since the last line of metrics; None for a NaN or infinite one.
        pending_seconds: training time of those steps.
        passed_over: stretches of the data that a rollback left out: from this step on, so many batches.
        rate_scale: what the schedule's learning rate is multiplied by since a second rollback.
        rollbacks: how often the run went back.
        skipped: steps whose update was refused, of the last thousand.
        recent_norms: logarithms of the gradient norms that a spike is measured against.
        norms_seen: how many norms went through that window.
        elapsed_seconds: time that the run's processes trained, evaluated and saved, by a clock that only runs
            forward.
        kept_at_seconds: of these, when a checkpoint was last kept for good.
    """

    step: int = 0
    best_val_loss: float | None = None
    best_step: int | None = None
    last_eval_step: int | None = None
    pending_losses: list[float | None] = field(default_factory=list)
    pending_seconds: float = 0.0
    passed_over: list[tuple[int, int]] = field(default_factory=list)
    rate_scale: float = 1.0
    rollbacks: int = 0
    skipped: list[int] = field(default_factory=list)
    recent_norms: list[float] = field(default_factory=list)
    norms_seen: int = 0
    elapsed_seconds: float = 0.0
    kept_at_seconds: float = 0.0

    def is_best(self, val_loss: float) -> bool:
        """Whether a validation loss is a number and lower than any before."""
        return math.isfinite(val_loss) and (self.best_val_loss is None or val_loss < self.best_val_loss)

    def batch_number(self, step: int) -> int:
        """Which batch of the data's order a step sees: its own number, but for stretches passed over."""
        return step + sum(batches for begin, batches in self.passed_over if begin <= step)


def dropout_seed(seed: int, step: int, rank: int = 0) -> int:
    """The seed of a step's dropout: the same on every resume, another at every step and in every process.

    A multiplicative hash (Knuth's 64-bit constants) spreads neighbouring steps over all 63 bits; the third
    factor, for processes, is the golden ratio's.
    """
    return (
        (seed + 1) * 6364136223846793005 + step * 1442695040888963407 + rank * 11400714819323198485
    ) % 2**63

"""What may be asked of a drawn run."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What must hold of a drawn run; whatever is left out is drawn.

    Attributes:
        parameters: smallest and largest size, in the trainer's count; roughly met.
        tokens_per_parameter: planned tokens over parameters.
        devices: names to choose from.
        kinds: kinds of device to choose from.
        count: devices.
        vocabulary: rows of the token embedding.
        dataset: its name.
        epochs: passes over the data that are planned.
        efficiency: true MFU.
        tokens_per_step: smallest and largest; roughly met.
        micro_batch: most sequences in a micro-batch.
        dropout: probability.
        finished: the run came to its planned end.
        evaluations: how many.
        eval_iters: batches in an evaluation.
        block_size: context.
        variant: line shape.
        aligned: every evaluation falls on a logged step.
        steps: fewest and most planned steps.
        embedding_share: smallest and largest share of the parameters in the vocabulary.
        days: longest run.
    """

    parameters: tuple[float, float] | None = None
    tokens_per_parameter: tuple[float, float] | None = None
    devices: tuple[str, ...] | None = None
    kinds: tuple[str, ...] | None = None
    count: int | None = None
    vocabulary: int | None = None
    dataset: str | None = None
    epochs: tuple[float, float] | None = None
    efficiency: tuple[float, float] | None = None
    tokens_per_step: tuple[float, float] | None = None
    micro_batch: int | None = None
    dropout: float | None = None
    finished: bool | None = None
    evaluations: tuple[int, int] | None = None
    eval_iters: int | None = None
    block_size: int | None = None
    variant: str | None = None
    aligned: bool | None = None
    steps: tuple[int, int] = (500, 40_000)
    embedding_share: tuple[float, float] | None = None
    days: float = 10.0

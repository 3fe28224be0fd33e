"""What is true of a simulated run: the run as it happened, whatever is said about it later."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tests.simulator.devices import Device
from tests.simulator.shapes import Shape

Floats = npt.NDArray[np.float64]
Value = int | float | str | bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A learning-rate schedule.

    Attributes:
        shape: `cosine`, `linear`, `trapezoid` (linear cool-down over the last part) or `constant`.
        peak: highest learning rate.
        floor: learning rate at the end of the decay.
        warmup: steps of linear warm-up.
        decay_steps: step at which the decay ends.
        cooldown: share of the steps that a trapezoid cools down over.
        first: what the warm-up counts from: 1 where the first step already moves, 0 where it does not.
    """

    shape: str
    peak: float
    floor: float
    warmup: int
    decay_steps: int
    cooldown: float = 0.4
    first: int = 1

    def at(self, steps: Floats) -> Floats:
        """The learning rate of each step."""
        span = max(1.0, self.decay_steps - self.warmup)
        progress = np.clip((steps - self.warmup) / span, 0.0, 1.0)
        match self.shape:
            case "cosine":
                share = 0.5 * (1.0 + np.cos(np.pi * progress))
            case "linear":
                share = 1.0 - progress
            case "trapezoid":
                left = (self.decay_steps - steps) / max(1.0, self.cooldown * self.decay_steps)
                share = np.clip(left, 0.0, 1.0)
            case _:
                share = np.ones_like(steps)
        rate = self.floor + share * (self.peak - self.floor)
        rising = self.peak * (steps + self.first) / max(1, self.warmup)
        return np.where(steps < self.warmup, np.minimum(rising, self.peak), rate)


@dataclass(frozen=True, slots=True, kw_only=True)
class Law:
    """Loss of a fully trained model: floor + a / N^alpha + b / D^beta, in nats a token.

    Attributes:
        scale: how many nats a token carries here, relative to GPT-2's tokenizer on web text.
        recipe_bonus: nats that the learning rate's decay is worth.
        late: how much the law is too good from 25 tokens per parameter on, in nats for each e-fold.
    """

    floor: float
    a: float
    alpha: float
    b: float
    beta: float
    scale: float = 1.0
    recipe_bonus: float = 0.08
    late: float = 0.0

    def capacity(self, parameters: float) -> float:
        """What is left when data is no limit."""
        return float(self.floor + self.a / parameters**self.alpha)


@dataclass(frozen=True, slots=True, kw_only=True)
class Overfit:
    """Validation is best at `best_step` and ends `rise` higher; eval-mode train loss ends at `train_end`."""

    best_step: int
    rise: float
    train_end: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Rise:
    """The loss climbs by `height` nats from `step` on, and is half way back (or up) `half_steps` later."""

    step: int
    height: float
    half_steps: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """What went wrong in the run itself; nothing by default.

    Attributes:
        spikes: rises that come back.
        divergence: a rise that stays.
        bad_from: first step whose loss is no number.
        bad_word: what is printed then.
        stuck_level: the loss never falls below this.
        initial_shift: nats by which the first loss is off ln(vocabulary).
        loss_scale: the trainer prints this multiple of the training loss.
        overfit: memorization with a validation optimum.
        val_level: validation settles this far above ln(vocabulary).
        ripple_period: steps between crests of validation; 0 for none.
        ripple_height: half the distance between crest and trough, in nats.
        stalls: step → how many times slower it was.
        second_schedule: learning rate after a resume; `resume_bump` nats are lost and regained there.
        resume_bump: see above.
        first_accumulation: of the first process, where the run went on with another; 0: the same.
    """

    spikes: tuple[Rise, ...] = ()
    divergence: Rise | None = None
    bad_from: int | None = None
    bad_word: str = "nan"
    stuck_level: float | None = None
    initial_shift: float = 0.0
    loss_scale: float = 1.0
    overfit: Overfit | None = None
    val_level: float | None = None
    ripple_period: float = 0.0
    ripple_height: float = 0.0
    stalls: Mapping[int, float] = field(default_factory=dict)
    second_schedule: Schedule | None = None
    resume_bump: float = 0.0
    first_accumulation: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """A training run as it happened. Times in seconds, losses in nats a token, memory in GiB.

    Attributes:
        format: the trainer, one of `FORMATS`.
        variant: which of the trainer's line shapes; empty for the usual one.
        device: what it ran on.
        device_count: how many of them.
        dtype: of the matrix products.
        compiled: whether torch.compile was on.
        efficiency: FLOPs (PaLM's count) over the device's peak, from 0 to 1: the true MFU.
        shape: the model.
        dropout: probability.
        micro_batch: sequences in one forward pass.
        accumulation: micro-batches in one step, over all devices.
        max_iters: planned steps.
        segments: (first step, last step) of each process; more than one where the run was resumed.
        log_interval: steps between training lines.
        eval_interval: steps between evaluations; 0 for none.
        eval_iters: batches in one evaluation of one split.
        schedule: learning rate.
        dataset: its name.
        train_tokens: unique training tokens.
        val_tokens: validation tokens; None where nobody knows.
        law: what loss this data and recipe lead to.
        noise: standard deviation of the loss of 1,024 tokens, as training lines draw them.
        eval_noise: the same as evaluations draw them; fresh random windows each time unless `eval_fixed`.
        eval_fixed: every evaluation reads the same tokens.
        split_offset: by how much the validation split is harder than the training data.
        dropout_offset: by how much dropout lifts the training lines.
        initial_loss: the first loss.
        transient_steps: how long the slow start lasts.
        compile_seconds: added to the first step of each process.
        eval_seconds: one evaluation.
        checkpoint_seconds: one checkpoint.
        bytes_per_token: of the tokenizer, for trainers that print bits a byte.
        trouble: what went wrong.
    """

    format: str
    variant: str = ""
    device: Device
    device_count: int
    dtype: str
    compiled: bool
    efficiency: float
    shape: Shape
    dropout: float
    micro_batch: int
    accumulation: int
    max_iters: int
    segments: tuple[tuple[int, int], ...]
    log_interval: int
    eval_interval: int
    eval_iters: int
    schedule: Schedule
    dataset: str
    train_tokens: int
    val_tokens: int | None
    law: Law
    noise: float
    eval_noise: float
    eval_fixed: bool
    split_offset: float
    dropout_offset: float
    initial_loss: float
    transient_steps: float
    compile_seconds: float
    eval_seconds: float
    checkpoint_seconds: float
    bytes_per_token: float = 4.5
    trouble: Trouble = field(default_factory=Trouble)

    @property
    def parameters(self) -> int:
        """As the trainer counts them."""
        return self.shape.parameters

    @property
    def tokens_per_step(self) -> int:
        """Tokens in one optimizer step, over all devices."""
        return self.micro_batch * self.accumulation * self.shape.block_size

    @property
    def first_step(self) -> int:
        """The step that the log begins with."""
        return self.segments[0][0]

    @property
    def last_step(self) -> int:
        """The step that the run came to."""
        return self.segments[-1][1]

    @property
    def tokens_seen(self) -> int:
        """Tokens trained on."""
        if not self.trouble.first_accumulation:
            return self.last_step * self.tokens_per_step
        resumed = self.segments[1][0]
        return resumed * self.process(0).tokens_per_step + (self.last_step - resumed) * self.tokens_per_step

    @property
    def tokens_per_parameter(self) -> float:
        """Tokens trained on over the trainer's count."""
        return self.tokens_seen / self.parameters

    @property
    def epochs(self) -> float:
        """Passes over the training data."""
        return self.tokens_seen / self.train_tokens

    @property
    def achieved_flops(self) -> float:
        """FLOP/s of one device, PaLM's count."""
        return self.efficiency * self.device.peak_flops

    @property
    def tokens_per_second(self) -> float:
        """Over all devices."""
        return self.achieved_flops * self.device_count / self.shape.flops_per_token

    @property
    def step_seconds(self) -> float:
        """One optimizer step with nothing else in it."""
        return self.tokens_per_step / self.tokens_per_second

    @property
    def eval_error(self) -> float:
        """Standard error of one printed evaluation loss."""
        tokens = self.eval_iters * self.micro_batch * self.shape.block_size
        return float(self.eval_noise * np.sqrt(1024 / tokens))

    @property
    def uniform_loss(self) -> float:
        """ln(vocabulary)."""
        return float(np.log(self.shape.vocab_size))

    def process(self, index: int) -> "Truth":
        """The run as one process of it was: the first may have had another accumulation."""
        other = self.trouble.first_accumulation
        return self.but(accumulation=other) if other and index == 0 else self

    def planned_steps(self, process: int) -> int:
        """What a process believed the run's last step to be: a resume with a new schedule changes it."""
        extended = self.trouble.second_schedule is not None
        return self.segments[0][1] if extended and process == 0 else self.max_iters

    def but(self, **changes: object) -> "Truth":
        """The same run with some things different."""
        return dataclasses.replace(self, **changes)  # type: ignore[arg-type]

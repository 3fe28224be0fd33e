"""Every setting of a run: its type, range, default and help line, in this one place.

The command line's options, the validation and the start-up table are made from these fields. Names and
defaults are nanoGPT's, so that a nanoGPT config or command line means the same here; what nanoGPT does not
have is marked by its help line alone. Rules that need several fields at once are in `problems_of`, and all
that are broken are reported together.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from gptwright.errors import ConfigError

Positive = Annotated[int, Field(ge=1)]
Fraction = Annotated[float, Field(ge=0.0, lt=1.0)]


class TrainConfig(BaseModel):
    """The settings of one training run. Frozen; made by `gptwright.config.load.load_config`."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    # where things go, and when
    out_dir: str = Field("out", description="run folder to write", min_length=1)
    eval_interval: Positive = Field(2000, description="steps between evaluations")
    log_interval: Positive = Field(1, description="steps between log lines")
    eval_iters: Positive = Field(200, description="evaluation uses eval_iters × batch_size windows a split")
    eval_only: bool = Field(False, description="evaluate once and stop")
    checkpoint_interval: Annotated[int, Field(ge=0)] = Field(
        0, description="steps between checkpoints; 0: one after each evaluation"
    )
    keep_checkpoints: Annotated[int, Field(ge=2)] = Field(
        2, description="newest checkpoints to keep, beside the best one"
    )
    init_from: Literal["scratch", "resume", "auto"] = Field(
        "scratch",
        description="scratch: new weights; resume: go on from out_dir's last checkpoint; auto: resume if"
        " out_dir holds a run",
    )

    # data
    dataset: str = Field(
        "openwebtext", description="token dataset: a folder, or a name under data/", min_length=1
    )
    batch_size: Positive = Field(12, description="micro-batch: sequences in one forward pass")
    gradient_accumulation_steps: Positive = Field(
        40, description="micro-batches whose gradients are averaged into one step"
    )
    tokens_per_step: Positive | None = Field(
        None, description="tokens in one optimizer step; sets gradient_accumulation_steps from it"
    )
    block_size: Positive = Field(1024, description="context length in tokens")
    sampling: Literal["random", "epoch"] = Field(
        "random",
        description="random: windows as nanoGPT draws them; epoch: every window once a pass, shuffled",
    )
    seed: Annotated[int, Field(ge=0, lt=2**63)] = Field(
        1337, description="seed of weights, data order and dropout"
    )

    # model
    n_layer: Positive = Field(12, description="number of blocks")
    n_head: Positive = Field(12, description="attention heads a block")
    n_embd: Positive = Field(768, description="width: channels of the residual stream")
    dropout: Fraction = Field(0.0, description="dropout probability; 0 suits one pass over fresh data")
    bias: bool = Field(False, description="biases in linear layers and layer norms")
    tie_weights: bool = Field(
        True, description="share the token embedding with the output head, as GPT-2 does"
    )
    vocab_size: Positive | None = Field(
        None,
        description="rows of the token embedding; default: the dataset's vocabulary, GPT-2's padded to 50304",
    )

    # AdamW
    learning_rate: Annotated[float, Field(gt=0.0)] = Field(6e-4, description="highest learning rate")
    max_iters: Positive = Field(600000, description="optimizer steps to train")
    weight_decay: Annotated[float, Field(ge=0.0)] = Field(1e-1, description="weight decay of matrices")
    beta1: Fraction = Field(0.9, description="AdamW's decay of the mean gradient")
    beta2: Fraction = Field(0.95, description="AdamW's decay of the mean squared gradient")
    grad_clip: Annotated[float, Field(ge=0.0)] = Field(
        1.0, description="largest gradient norm; 0: no clipping"
    )

    # learning-rate schedule
    decay_lr: bool = Field(True, description="follow lr_schedule; False: constant learning rate")
    lr_schedule: Literal["cosine", "linear", "wsd"] = Field(
        "cosine", description="shape of the decay; wsd: warm-up, stable, then a linear cool-down"
    )
    warmup_iters: Annotated[int, Field(ge=0)] = Field(2000, description="steps of linear warm-up")
    lr_decay_iters: Positive = Field(600000, description="step at which the decay ends; usually max_iters")
    cooldown_fraction: Annotated[float, Field(gt=0.0, le=1.0)] = Field(
        0.2, description="wsd: last share of lr_decay_iters spent cooling down"
    )
    min_lr: Annotated[float, Field(ge=0.0)] = Field(6e-5, description="learning rate at the end of the decay")

    # machine
    device: str = Field("auto", description="auto, cpu, cuda, cuda:N or mps", min_length=1)
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        "auto", description="dtype of matrix multiplications; weights stay float32"
    )
    compile: bool | Literal["auto"] = Field("auto", description="torch.compile: True, False or auto")
    parallel: Literal["auto", "ddp", "fsdp"] = Field(
        "auto",
        description="under torchrun: ddp, a whole copy in each process; fsdp, weights, gradients and moments"
        " divided among them; auto: ddp where a copy fits",
    )
    rank_timeout: Annotated[float, Field(gt=0.0)] = Field(
        600.0, description="seconds that a process waits for the others before it takes them for lost"
    )

    @property
    def sequences_per_step(self) -> int:
        """Sequences in one optimizer step, over all micro-batches."""
        return self.batch_size * self.gradient_accumulation_steps

    @property
    def checkpoint_every(self) -> int:
        """Steps between planned checkpoints."""
        return self.checkpoint_interval or self.eval_interval


def problems_of(config: TrainConfig) -> list[ConfigError]:
    """All contradictions between fields that are each fine alone."""
    problems = []
    if config.n_embd % config.n_head:
        lower = config.n_embd // config.n_head * config.n_head
        choices = " or ".join(f"--n_embd={value}" for value in (lower, lower + config.n_head) if value)
        problems.append(
            ConfigError(
                f"n_embd = {config.n_embd} is not divisible by n_head = {config.n_head}",
                why="every attention head takes n_embd / n_head channels",
                fix=choices,
            )
        )
    return problems


def warnings_of(config: TrainConfig) -> list[str]:
    """Settings that nanoGPT accepts too and that rarely mean what was wanted."""
    if not config.decay_lr:
        return []
    warnings = []
    if config.min_lr > config.learning_rate:
        warnings.append(
            f"min_lr = {config.min_lr:g} is above learning_rate = {config.learning_rate:g}:"
            f" the learning rate rises where it should decay (try --min_lr={config.learning_rate / 10:g})"
        )
    if config.warmup_iters >= config.max_iters:
        warnings.append(
            f"warmup_iters = {config.warmup_iters} is no less than max_iters = {config.max_iters}:"
            f" the learning rate never reaches {config.learning_rate:g}"
            f" (try --warmup_iters={config.max_iters // 20})"
        )
    if config.lr_decay_iters != config.max_iters:
        warnings.append(
            f"lr_decay_iters = {config.lr_decay_iters} is not max_iters = {config.max_iters}:"
            f" the decay ends elsewhere than the run (try --lr_decay_iters={config.max_iters})"
        )
    return warnings


def with_accumulation(config: TrainConfig, *, accumulation_given: bool) -> TrainConfig:
    """Turns `tokens_per_step` into `gradient_accumulation_steps`.

    Args:
        config: settings of which `tokens_per_step` may be set.
        accumulation_given: whether the person set `gradient_accumulation_steps` too.

    Raises:
        ConfigError: `tokens_per_step` is no multiple of a micro-batch, or contradicts the accumulation.
    """
    if config.tokens_per_step is None:
        return config
    micro_batch_tokens = config.batch_size * config.block_size
    steps, rest = divmod(config.tokens_per_step, micro_batch_tokens)
    if rest or not steps:
        near = sorted({max(1, steps) * micro_batch_tokens, (steps + 1) * micro_batch_tokens})
        raise ConfigError(
            f"tokens_per_step = {config.tokens_per_step} is not a multiple of"
            f" batch_size × block_size = {micro_batch_tokens}",
            why="a step is a whole number of micro-batches",
            fix=" or ".join(f"--tokens_per_step={tokens}" for tokens in near),
        )
    if accumulation_given and steps != config.gradient_accumulation_steps:
        raise ConfigError(
            f"tokens_per_step = {config.tokens_per_step} needs gradient_accumulation_steps = {steps},"
            f" and it is set to {config.gradient_accumulation_steps}",
            why="the two say the same thing, and they disagree",
            fix="give only one of them",
        )
    return config.model_copy(update={"gradient_accumulation_steps": steps})

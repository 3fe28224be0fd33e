"""Every setting of a run: its type, range, default and help line, in this one place.

The command line's options, the validation and the start-up table are made from these fields. Names and
defaults are nanoGPT's, so that a nanoGPT config or command line means the same here; what nanoGPT does not
have is marked by its help line alone. Rules that need several fields at once are in `problems_of`, and all
that are broken are reported together.
"""

from dataclasses import dataclass, replace
from typing import Literal

from gptwright.config.fields import fields_of, setting
from gptwright.config.ingredients import Ingredients, recipe_of
from gptwright.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig:
    """The settings of one training run. Frozen; made by `gptwright.config.load.load_config`."""

    # where things go, and when
    out_dir: str = setting("out", "run folder to write")
    eval_interval: int = setting(2000, "steps between evaluations", least=1)
    log_interval: int = setting(1, "steps between log lines", least=1)
    eval_iters: int = setting(200, "evaluation uses eval_iters × batch_size windows a split", least=1)
    eval_only: bool = setting(False, "evaluate once and stop")
    checkpoint_interval: int = setting(0, "steps between checkpoints; 0: one after each evaluation", least=0)
    keep_checkpoints: int = setting(2, "newest checkpoints to keep, beside the best one", least=2)
    keep_hours: float = setting(
        0.0, "keep one checkpoint for good every so many hours of training; 0: none", least=0.0
    )
    async_checkpoints: bool | Literal["auto"] = setting(
        "auto", "write checkpoints beside the training; auto: where the device has its own memory"
    )
    init_from: str = setting(
        "scratch",
        "scratch; resume: go on from out_dir's last checkpoint; auto: resume if out_dir holds a run; gpt2,"
        " gpt2-medium, gpt2-large, gpt2-xl, a folder of Hugging Face's, a nanoGPT or llm.c checkpoint, a run:"
        " start from its weights",
    )

    # data
    dataset: str = setting("openwebtext", "token dataset: a folder, or a name under data/")
    batch_size: int = setting(12, "micro-batch: sequences in one forward pass", least=1)
    eval_batch_size: int | None = setting(
        None, "sequences in one forward pass of an evaluation; default: batch_size", least=1
    )
    gradient_accumulation_steps: int = setting(
        40, "micro-batches whose gradients are averaged into one step", least=1
    )
    tokens_per_step: int | None = setting(
        None, "tokens in one optimizer step; sets gradient_accumulation_steps from it", least=1
    )
    block_size: int = setting(1024, "context length in tokens", least=1)
    sampling: Literal["random", "epoch"] = setting(
        "random", "random: windows as nanoGPT draws them; epoch: every window once a pass, shuffled"
    )
    seed: int = setting(1337, "seed of weights, data order and dropout", least=0, below=2**63)

    # model
    arch: Literal["gpt2", "modern"] = setting(
        "gpt2", "gpt2: nanoGPT's model to the bit; modern: all of the ingredients below"
    )
    n_layer: int = setting(12, "number of blocks", least=1)
    n_head: int = setting(12, "attention heads a block", least=1)
    n_embd: int = setting(768, "width: channels of the residual stream", least=1)
    dropout: float = setting(
        0.0, "dropout probability; 0 suits one pass over fresh data", least=0.0, below=1.0
    )
    bias: bool = setting(False, "biases in linear layers and layer norms")
    tie_weights: bool = setting(True, "share the token embedding with the output head, as GPT-2 does")
    vocab_size: int | None = setting(
        None,
        "rows of the token embedding; default: the dataset's vocabulary, GPT-2's padded to 50304",
        least=1,
    )

    # ingredients: None is False for arch gpt2 and True for modern
    rope: bool | None = setting(None, "rotary positions instead of learned ones; default: as arch")
    rope_base: float = setting(
        10_000.0, "rope: base of its wavelengths; 100 suits contexts of some 64 tokens", above=1.0
    )
    rms_norm: bool | None = setting(
        None, "RMS norms without weights instead of layer norms; default: as arch"
    )
    qk_norm: bool | None = setting(None, "normalize queries and keys of each head; default: as arch")
    relu2: bool | None = setting(None, "squared ReLU instead of GELU; default: as arch")
    zero_init: bool | None = setting(None, "start projections and an untied head at zero; default: as arch")
    smear: bool | None = setting(None, "mix the token before into each embedding; default: as arch")

    # optimizer
    optimizer: Literal["adamw", "muon"] = setting(
        "adamw", "muon: for the matrices of the blocks, with AdamW for the rest"
    )
    muon_learning_rate: float = setting(
        0.02,
        "muon: highest learning rate of the matrices; learning_rate is the others'",
        above=0.0,
        most=1e30,
    )
    muon_momentum: float = setting(
        0.95, "muon: decay of the mean gradient, reached from 0.85", least=0.0, below=1.0
    )
    muon_steps: int = setting(
        5, "muon: Newton-Schulz steps an update; 3 are enough for small models", least=1, most=5
    )
    muon_warmup_iters: int = setting(300, "muon: steps over which its momentum rises", least=0)
    learning_rate: float = setting(6e-4, "highest learning rate", above=0.0, most=1e30)
    max_iters: int = setting(600000, "optimizer steps to train", least=1)
    weight_decay: float = setting(1e-1, "weight decay of matrices", least=0.0, most=1e30)
    beta1: float = setting(0.9, "AdamW's decay of the mean gradient", least=0.0, below=1.0)
    beta2: float = setting(0.95, "AdamW's decay of the mean squared gradient", least=0.0, below=1.0)
    grad_clip: float = setting(1.0, "largest gradient norm; 0: no clipping", least=0.0)

    # learning-rate schedule
    decay_lr: bool = setting(True, "follow lr_schedule; False: constant learning rate")
    lr_schedule: Literal["cosine", "linear", "wsd"] = setting(
        "cosine", "shape of the decay; wsd: warm-up, stable, then a linear cool-down"
    )
    warmup_iters: int = setting(2000, "steps of linear warm-up", least=0)
    lr_decay_iters: int = setting(600000, "step at which the decay ends; usually max_iters", least=1)
    cooldown_fraction: float = setting(
        0.2, "wsd: last share of lr_decay_iters spent cooling down", above=0.0, most=1.0
    )
    min_lr: float = setting(6e-5, "learning rate at the end of the decay", least=0.0, most=1e30)

    # guards
    nonfinite: Literal["skip", "rollback", "stop"] = setting(
        "skip",
        "a NaN or infinite loss or gradient: skip the update (then roll back, then stop),"
        " roll back at once, or stop at once",
    )
    skip_budget: int = setting(10, "updates skipped within 1000 steps before the run is rolled back", least=0)
    rollback_budget: int = setting(
        3,
        "rollbacks past a bad stretch of data before it stops; from the second at half the rate",
        least=0,
    )
    spike_z: float = setting(
        0.0,
        "skip an update whose gradient norm is so many deviations above the last 128; 0: never",
        least=0.0,
    )
    stuck_steps: int = setting(
        1000, "steps after warm-up by which the loss must beat token frequencies; 0: no check", least=0
    )
    stall_seconds: float = setting(
        600.0, "a step that takes longer is reported with all stacks; 0: no watchdog", least=0.0
    )
    out_of_memory: Literal["shrink", "stop"] = setting(
        "shrink",
        "shrink: halve the micro-batch and double the accumulation until a step fits; or stop, as several"
        " processes always do",
    )

    # machine
    device: str = setting(
        "auto", "auto, cpu, cuda, cuda:N or mps; for a plan any device's name too, such as 'RTX 4070'"
    )
    threads: int = setting(
        0,
        "threads on a CPU; 0: all, or fewer by measurement where other processes are busy",
        least=0,
        most=1024,
    )
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = setting(
        "auto", "dtype of matrix multiplications; weights stay float32"
    )
    attention_dtype: Literal["auto", "dtype", "float32"] = setting(
        "auto",
        "dtype: attention in the dtype of the other products; float32: attention alone in float32; auto: on a"
        " CPU that has bfloat16 the quicker one, elsewhere `dtype`",
    )
    kernels: bool | Literal["auto"] = setting(
        "auto",
        "our own compiled code for a step on a CPU; auto: where it is timed to be quicker; it needs gcc",
    )
    compile: bool | Literal["auto"] = setting(
        "auto", "torch.compile; auto: on a CUDA GPU, where a compiler is installed"
    )
    loss_chunk: int = setting(
        0,
        "tokens whose logits are in memory at a time: a few hundred save gigabytes with GPT-2's vocabulary;"
        " 0: all, as nanoGPT",
        least=0,
    )
    gradient_checkpointing: bool = setting(
        False,
        "keep each block's input alone and compute the block again in the backward pass: less memory"
        " for about a third more time",
    )
    parallel: Literal["auto", "ddp", "fsdp"] = setting(
        "auto",
        "under torchrun: ddp, a whole copy in each process; fsdp, weights, gradients and moments divided"
        " among them; auto: ddp where a copy fits",
    )
    rank_timeout: float = setting(
        600.0, "seconds that a process waits for the others before it takes them for lost", above=0.0
    )

    # loggers, beside the record in metrics.jsonl; they need the extra `log`
    tensorboard: bool = setting(False, "write TensorBoard event files into out_dir/tensorboard")
    wandb_log: bool = setting(False, "log to Weights & Biases; WANDB_MODE=offline writes files")
    wandb_project: str = setting("gptwright", "the project of wandb_log")
    wandb_run_name: str | None = setting(None, "the run's name there; default: that of out_dir")

    @property
    def ingredients(self) -> Ingredients:
        """Those of `arch`, and what was asked for beside it."""
        return Ingredients.of(
            self.arch,
            {
                "rope": self.rope,
                "rms_norm": self.rms_norm,
                "qk_norm": self.qk_norm,
                "relu2": self.relu2,
                "zero_init": self.zero_init,
                "smear": self.smear,
            },
        )

    @property
    def recipe(self) -> str:
        """`gpt2`, `modern`, or `mixed`: which published curves this training can be held against."""
        return recipe_of(self.ingredients, self.optimizer)

    @property
    def sequences_per_step(self) -> int:
        """Sequences in one optimizer step, over all micro-batches."""
        return self.batch_size * self.gradient_accumulation_steps

    @property
    def checkpoint_every(self) -> int:
        """Steps between planned checkpoints."""
        return self.checkpoint_interval or self.eval_interval


FIELDS = fields_of(TrainConfig)


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
    elif config.ingredients.rope and (config.n_embd // config.n_head) % 2:
        problems.append(
            ConfigError(
                f"n_embd / n_head = {config.n_embd // config.n_head} is odd",
                why="rope turns the channels of a head in pairs",
                fix=f"--n_embd={config.n_embd + config.n_head}, or --rope=False",
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
    elif config.min_lr == config.learning_rate:
        warnings.append(
            f"min_lr = {config.min_lr:g} is learning_rate: nothing decays"
            f" (try --min_lr={config.learning_rate / 10:g})"
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
            fix=f"--gradient_accumulation_steps={steps}, or give only one of them",
        )
    return replace(config, gradient_accumulation_steps=steps)

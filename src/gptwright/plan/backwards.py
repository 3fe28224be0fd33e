"""A plan solved backwards: from tokens, hours or parameters to a config that `train` takes.

"The best model in H hours on this card" tries a ladder of sizes: for each, the largest micro-batch that fits,
the tokens that its speed allows in the time, and the two terms of a fitted scaling law; the size with the
smallest sum wins. The law's absolute loss is not portable, its minimum is, and it is flat: sizes near it do
as well. Where the text is known and short, it limits both: passes beyond the sixteenth teach little, and a
model of many more parameters than tokens only memorizes, which the law does not show.
"""

import math
from dataclasses import dataclass, replace

from gptwright import units
from gptwright.arithmetic.evaluation import text_kind
from gptwright.arithmetic.scaling import (
    BESIROGLU,
    GPT3_BATCH,
    GPT3_RATE,
    GPT3_WIDTH,
    MOST_PASSES,
    best_batch,
    effective_tokens,
    loss_terms,
)
from gptwright.config.schema import FIELDS, TrainConfig
from gptwright.errors import ConfigError
from gptwright.facts import Fact, derived
from gptwright.plan.batch import fit
from gptwright.plan.evaluation import evaluations
from gptwright.plan.plan import Plan, Planner

# Width over depth of 64 and heads of 64 are GPT-2 small's, and best at that size.
ASPECT, HEAD = 64, 64
SMALLEST_WIDTH, LARGEST_WIDTH = 64, 2048
# Neighbours differ by a factor of two at most; what is further from all of them was not found.
NEAR_ENOUGH = 1.5
# GPT-3's rate is larger for narrower models, up to what small models train well at.
HIGHEST_RATE = 1e-3
# Tokens a step of the shortest runs; those of the longest are GPT-3's.
SMALLEST_BATCH = 2**11
# Below some two thousand steps a short run learns less from the same tokens: nanoGPT's recipes for characters
# have 2,000 of 768 and are best after 1,750 of 16,384, nanochat's d12 has 2,500 of half a million.
FEWEST_STEPS = 2000
# Of nanoGPT's recipe for characters: a context of 1,024 costs time there, and teaches little.
CHARACTERS_CONTEXT = 256
# nanoGPT's recipe for a megabyte of characters, which overfits from the 29th pass on, has 10.6 parameters a
# token; twice the layers are worse from the start (nanoGPT issue 211). For a BPE's tokens, parameters beyond
# 22 times the best number for the text (0.051 a token) count for nothing: 1 + 4 half-lives of 2305.16264.
MOST_PARAMETERS_PER_TOKEN = {"char": 11.0, "bpe": 1.1}
# Nobody asks for hours to spend more than a part of them on evaluations; where they would, fewer windows take
# a tenth of the time.
MOST_EVALUATION, SOME_EVALUATION = 0.25, 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """What is wanted; None where it is not asked for."""

    tokens: float | None = None
    tokens_per_parameter: float | None = None
    hours: float | None = None
    parameters: float | None = None


@dataclass(frozen=True, slots=True)
class Solved:
    """The config that meets the targets, its plan, each change, and why in words."""

    config: TrainConfig
    plan: Plan
    changes: tuple[Fact, ...]
    reason: str


def solve(
    config: TrainConfig,
    planner: Planner,
    targets: Targets,
    *,
    choose_model: bool,
    choose_context: bool = False,
) -> Solved:
    """Finds the config that meets the targets.

    Args:
        config: where to start from.
        planner: makes a plan of a config, for the device and data at hand.
        targets: what is wanted.
        choose_model: whether the model's size is free; else only the number of steps is solved for.
        choose_context: whether its context is free too.

    Raises:
        ConfigError: the targets contradict each other, no model has so many parameters, or nothing tells
            the speed that hours need.
    """
    if sum(t is not None for t in (targets.tokens, targets.tokens_per_parameter, targets.hours)) > 1:
        raise ConfigError(
            "--tokens, --chinchilla and --hours each say how long the run is",
            why="they would contradict each other",
            fix="give one of them",
        )
    start = config
    if choose_context and text_kind(planner(config).shape.vocab_size) == "char":
        config = replace(config, block_size=CHARACTERS_CONTEXT)
    if targets.parameters is not None:
        config = _nearest_shape(config, planner, targets.parameters)
        plan = planner(config)
        if choose_model and plan.fits is False and plan.largest_micro_batch:
            # Nobody chose the batch either, so it is no larger than what fits.
            config = fit(plan)
    elif choose_model and targets.hours is not None:
        config = _best_shape(config, planner, targets.hours)
    config = _with_length(config, planner, targets, as_the_text_allows=choose_model)
    plan = planner(config)
    reason = _reason(plan, targets, as_the_text_allows=choose_model)
    return Solved(config, plan, changed(start, config, reason), reason)


def relengthen(config: TrainConfig, planner: Planner, targets: Targets, *, choose_model: bool) -> TrainConfig:
    """The same config with the steps that the targets give it now, as after a cut of its batch."""
    return _with_length(config, planner, targets, as_the_text_allows=choose_model)


def _shapes(config: TrainConfig) -> list[TrainConfig]:
    """A ladder of widths with their depth, heads, and learning rate."""
    ladder = []
    for width in range(SMALLEST_WIDTH, LARGEST_WIDTH + 1, 64):
        rate = min(HIGHEST_RATE, GPT3_RATE * GPT3_WIDTH / width)
        shaped = replace(
            config,
            n_embd=width,
            n_layer=max(2, round(width / ASPECT)),
            n_head=max(1, width // HEAD),
            learning_rate=float(f"{rate:.2g}"),
            min_lr=float(f"{rate / 10:.2g}"),
        )
        ladder.append(shaped)
    return ladder


def _nearest_shape(config: TrainConfig, planner: Planner, parameters: float) -> TrainConfig:
    def distance(candidate: TrainConfig) -> float:
        return abs(math.log(planner(candidate).shape.count_parameters().nanogpt / parameters))

    nearest = min(_shapes(config), key=distance)
    if distance(nearest) > math.log(NEAR_ENOUGH):
        plan = planner(nearest)
        made = plan.shape.count_parameters().nanogpt
        end = "smallest" if made > parameters else "largest"
        raise ConfigError(
            f"no model of the ladder has about {units.count(parameters)} parameters: the {end} has"
            f" {units.count(made)}, with a vocabulary of {plan.shape.vocab_size:,}",
            why=f"its widths are {SMALLEST_WIDTH} to {LARGEST_WIDTH}",
            fix="give n_layer, n_head and n_embd yourself, or another --vocab_size",
        )
    return nearest


def _best_shape(config: TrainConfig, planner: Planner, hours: float) -> TrainConfig:
    """The size whose law terms are smallest after as many tokens as its speed allows."""
    best: tuple[float, TrainConfig] | None = None
    for shape in _shapes(config):
        plan = planner(shape)
        unique = plan.train_tokens.number if plan.train_tokens is not None else None
        too_large = (
            best is not None
            and unique is not None
            and plan.shape.count_parameters().nanogpt > _most_parameters(plan.shape.vocab_size, unique)
        )
        if plan.largest_micro_batch == 0 or too_large:
            break
        candidate = _with_batch(shape, plan, _allowed(plan, _tokens_in(plan, hours)))
        plan = planner(candidate)
        tokens = _allowed(plan, _tokens_in(plan, hours))
        worth = tokens if unique is None else effective_tokens(unique=unique, total=tokens)
        loss = sum(loss_terms(BESIROGLU, plan.shape.count_parameters().nanogpt, worth))
        if best is None or loss < best[0]:
            best = loss, candidate
        elif loss > best[0] + 0.3:
            # Far past the minimum, and every larger size is slower still.
            break
    if best is None:
        raise ConfigError(
            "no model of the ladder fits this device", fix="lower block_size, or name another device"
        )
    return best[1]


def _with_batch(config: TrainConfig, plan: Plan, tokens: float) -> TrainConfig:
    """Tokens per step that suit the length of the run, cut to fit the device."""
    best = min(best_batch(tokens), tokens / FEWEST_STEPS)
    per_step = 2 ** round(math.log2(min(GPT3_BATCH, max(SMALLEST_BATCH, best))))
    sequences = max(plan.device.count, per_step // config.block_size)
    whole = replace(config, batch_size=1, gradient_accumulation_steps=sequences)
    if plan.largest_micro_batch is None:
        return replace(
            whole, batch_size=min(8, sequences), gradient_accumulation_steps=max(1, sequences // 8)
        )
    cut = min(plan.largest_micro_batch, sequences)
    while sequences % cut:
        cut -= 1
    return replace(whole, batch_size=cut, gradient_accumulation_steps=sequences // cut)


def _tokens_in(plan: Plan, hours: float) -> float:
    if plan.speed is None:
        raise ConfigError(
            "--hours needs a speed, and nothing is known about this device",
            why=plan.device.remark or f"the device is {plan.device.name.text}",
            fix="name a device of the table with --device, or use --measure on the machine itself",
        )
    return float(plan.speed.likely * hours * 3600)


def _most_parameters(vocab_size: int, unique_tokens: float) -> float:
    """The size beyond which a model only memorizes so much text."""
    return MOST_PARAMETERS_PER_TOKEN[text_kind(vocab_size)] * unique_tokens


def _allowed(plan: Plan, tokens: float) -> float:
    """As many of `tokens` as the text is worth passing over."""
    return min(tokens, MOST_PASSES * plan.train_tokens.number) if plan.train_tokens is not None else tokens


def _with_length(
    config: TrainConfig, planner: Planner, targets: Targets, *, as_the_text_allows: bool
) -> TrainConfig:
    """The number of steps that the targets give, with decay and warm-up to match."""
    plan = planner(config)
    if targets.hours is not None:
        tokens = _tokens_in(plan, targets.hours)
        if as_the_text_allows:
            tokens = _allowed(plan, tokens)
    elif targets.tokens_per_parameter is not None:
        tokens = targets.tokens_per_parameter * plan.shape.count_parameters().nanogpt
    elif targets.tokens is not None:
        tokens = targets.tokens
    else:
        return config
    if targets.hours is None:
        return _of_length(config, math.ceil(tokens / plan.tokens_per_step))
    made = _of_length(config, math.floor(tokens / plan.tokens_per_step))
    return _beside_evaluations(made, planner, targets.hours * 3600)


def _beside_evaluations(config: TrainConfig, planner: Planner, seconds: float) -> TrainConfig:
    """The config with as many steps as leave the time for its evaluations, and with fewer windows in these
    where they would take most of it.
    """
    plan = planner(config)
    cost = evaluations(plan).seconds
    if not plan.steps or cost is None or plan.seconds is None or plan.seconds[1] + cost[1] <= seconds:
        return config
    if plan.seconds[1] / plan.steps > seconds:
        raise ConfigError(
            f"not one step fits into {units.duration(seconds)}",
            why=f"a step of {plan.tokens_per_step:,} tokens takes about"
            f" {units.duration(plan.seconds[1] / plan.steps)}",
            fix="give more hours, or fewer tokens a step: --tokens_per_step",
        )
    if cost[1] > MOST_EVALUATION * seconds:
        share = SOME_EVALUATION * seconds / cost[1]
        config = replace(config, eval_iters=max(1, math.floor(config.eval_iters * share)))
        cost = evaluations(planner(config)).seconds or cost
    # A run is evaluated ten times, so their number hardly changes with its length.
    left = max(0.0, seconds - cost[1])
    return _of_length(config, math.floor(left / (plan.seconds[1] / plan.steps)))


def _of_length(config: TrainConfig, steps: int) -> TrainConfig:
    """The config with so many steps, one at least, and decay, warm-up and evaluations to match."""
    steps = max(1, steps)
    return replace(
        config,
        max_iters=steps,
        lr_decay_iters=steps,
        warmup_iters=min(config.warmup_iters, max(1, steps // 20), steps - 1),
        eval_interval=min(config.eval_interval, max(1, steps // 10)),
    )


def changed(before: TrainConfig, after: TrainConfig, reason: str) -> tuple[Fact, ...]:
    """Each setting that is another than before, with why."""
    return tuple(
        derived(name, getattr(after, name), reason)
        for name in FIELDS
        if getattr(after, name) != getattr(before, name)
    )


def _reason(plan: Plan, targets: Targets, *, as_the_text_allows: bool) -> str:
    """What was wanted, in words; empty where nothing was."""
    wanted = []
    if targets.hours is not None:
        wanted.append(units.duration(targets.hours * 3600))
        if as_the_text_allows and plan.epochs is not None and plan.epochs > MOST_PASSES - 1:
            wanted.append(f"no more than {MOST_PASSES} passes over the text")
    if targets.tokens is not None:
        wanted.append(f"{units.count(targets.tokens)} tokens")
    if targets.tokens_per_parameter is not None:
        wanted.append(f"{targets.tokens_per_parameter:g} tokens per parameter")
    if targets.parameters is not None:
        wanted.append(f"{units.count(targets.parameters)} parameters")
    return f"for {', '.join(wanted)}" if wanted else ""

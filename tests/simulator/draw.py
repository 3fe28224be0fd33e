"""Draws healthy runs: shapes, devices, batches and schedules that an expert would find nothing wrong with.

Healthy means: embeddings hold less than half of the model, heads of 32 to 128 channels, 2 to 40 tokens per
parameter, less than four passes over the data, a learning rate that fits size and batch, warm-up under a
tenth, a decay that ends with the run, evaluations of millions of tokens, MFU that such a model reaches there,
and no more than ten days.
"""

from dataclasses import dataclass

import numpy as np

from tests.simulator.datasets import Data, draw_data
from tests.simulator.devices import Device
from tests.simulator.formats import PROFILES, Profile
from tests.simulator.parts import draw_batch, draw_device, draw_efficiency, draw_shape, log_uniform
from tests.simulator.shapes import Shape
from tests.simulator.truth import Schedule, Truth
from tests.simulator.wishes import Wishes

NICE_STEPS = (1, 2, 5, 10, 20, 25, 50, 100, 200, 250, 500, 1000)
# Evaluations read at least this many tokens: a standard error of 0.008 nats.
EVAL_TOKENS = 2_500_000
CHARACTERS = 300


def random_truth(rng: np.random.Generator, format: str, **constraints: object) -> Truth:  # noqa: A002
    """A healthy run of a trainer.

    Args:
        rng: where all choices come from.
        format: the trainer, one of `FORMATS`.
        constraints: fields of `Wishes`.
    """
    wishes = Wishes(**constraints)  # type: ignore[arg-type]
    for _ in range(200):
        truth = _attempt(rng, format, wishes)
        if truth is not None:
            return truth
    raise AssertionError(f"no healthy {format} run meets {wishes}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """What is decided before the run itself: model, machine, batch and data; `tokens` are planned."""

    shape: Shape
    device: Device
    count: int
    efficiency: float
    tokens: float
    micro_batch: int
    accumulation: int
    data: Data

    @property
    def tokens_per_step(self) -> int:
        """Over all devices."""
        return self.micro_batch * self.accumulation * self.shape.block_size


@dataclass(frozen=True, slots=True, kw_only=True)
class Length:
    """How long a run is planned, how far it came, and when it speaks; in steps."""

    planned: int
    last: int
    log_interval: int
    eval_interval: int


def _attempt(rng: np.random.Generator, name: str, wishes: Wishes) -> Truth | None:
    draft = _draft(rng, name, wishes)
    if draft is None:
        return None
    length = _length(rng, name, draft, wishes)
    if not wishes.steps[0] <= length.planned <= wishes.steps[1]:
        return None
    return _truth(rng, name, wishes, draft, length)


def _draft(rng: np.random.Generator, name: str, wishes: Wishes) -> Draft | None:
    profile = PROFILES[name]
    shape = draw_shape(rng, profile, wishes)
    device = draw_device(rng, profile, wishes, shape) if shape else None
    if shape is None or device is None:
        return None
    tokens = log_uniform(rng, *(wishes.tokens_per_parameter or _usual_ratio(rng))) * shape.parameters
    count = wishes.count or (int(rng.choice(profile.counts)) if device.kind == "datacenter" else 1)
    efficiency = draw_efficiency(rng, device, shape, wishes)
    if tokens * shape.flops_per_token / (efficiency * device.peak_flops * count) > wishes.days * 86_400:
        return None
    batch = draw_batch(rng, profile, shape, device, count, tokens, wishes)
    if batch is None:
        return None
    return Draft(
        shape=shape,
        device=device,
        count=count,
        efficiency=efficiency,
        tokens=tokens,
        micro_batch=batch[0],
        accumulation=batch[1],
        data=draw_data(rng, name, shape, tokens, dataset=wishes.dataset, epochs=wishes.epochs),
    )


def _length(rng: np.random.Generator, name: str, draft: Draft, wishes: Wishes) -> Length:
    profile = PROFILES[name]
    evaluations = wishes.evaluations or ((8, 25) if draft.tokens_per_step > 65_536 else (5, 11))
    steps = draft.tokens / draft.tokens_per_step
    log_interval = next((nice for nice in NICE_STEPS if steps / nice <= profile.lines), 2000)
    eval_interval = max(1, round(steps / int(rng.integers(*evaluations)) / log_interval)) * log_interval
    if not (wishes.aligned or profile.aligned or rng.random() < 0.8):
        eval_interval += max(1, log_interval // 2)
    planned = max(1, round(steps / eval_interval)) * eval_interval
    last = planned - 1 if name == "build-nanogpt" else planned
    if wishes.finished is False or (wishes.finished is None and rng.random() < 0.2):
        last = round(planned * rng.uniform(0.3, 0.9) / log_interval) * log_interval
    return Length(planned=planned, last=last, log_interval=log_interval, eval_interval=eval_interval)


def _truth(rng: np.random.Generator, name: str, wishes: Wishes, draft: Draft, length: Length) -> Truth:
    profile, shape, device, data = PROFILES[name], draft.shape, draft.device, draft.data
    micro_tokens = draft.micro_batch * shape.block_size
    enough = max(50, -(-EVAL_TOKENS // (10 * micro_tokens)) * 10)
    eval_iters = wishes.eval_iters or profile.eval_iters or enough
    eval_flops = 2 * eval_iters * micro_tokens * shape.flops_per_token / 3
    schedule = _schedule(rng, profile, draft, length.planned)
    dropout = _dropout(rng, profile, wishes)
    on_cpu = device.kind == "cpu"
    return Truth(
        format=name,
        variant=wishes.variant if wishes.variant is not None else _variant(rng, name),
        device=device,
        device_count=draft.count,
        dtype="float32" if on_cpu else "bfloat16" if device.bf16 else "float16",
        compiled=not on_cpu,
        efficiency=draft.efficiency,
        shape=shape,
        dropout=dropout,
        micro_batch=draft.micro_batch,
        accumulation=draft.accumulation,
        max_iters=length.planned,
        segments=((0, length.last),),
        log_interval=length.log_interval,
        eval_interval=length.eval_interval if profile.evaluates else 0,
        eval_iters=eval_iters,
        schedule=schedule,
        dataset=data.name,
        train_tokens=data.train_tokens,
        val_tokens=data.val_tokens,
        law=data.law,
        noise=profile.noise * data.noise,
        eval_noise=0.4 * data.noise,
        eval_fixed=profile.eval_fixed,
        split_offset=float(rng.uniform(0.002, 0.03)) * data.law.scale,
        dropout_offset=0.9 * dropout * data.law.scale,
        initial_loss=_initial_loss(rng, profile, shape),
        transient_steps=max(0.9 * schedule.warmup, 0.02 * length.planned),
        compile_seconds=float(rng.uniform(0.5, 3.0) if on_cpu else rng.uniform(15.0, 70.0)),
        eval_seconds=eval_flops / (0.9 * draft.efficiency * device.peak_flops),
        checkpoint_seconds=12 * shape.total / float(rng.uniform(5e8, 2e9)),
        bytes_per_token=float(rng.uniform(4.3, 4.8)),
    )


def _dropout(rng: np.random.Generator, profile: Profile, wishes: Wishes) -> float:
    if not profile.dropout:
        return 0.0
    return wishes.dropout if wishes.dropout is not None else float(rng.choice([0.0, 0.0, 0.0, 0.1]))


def _usual_ratio(rng: np.random.Generator) -> tuple[float, float]:
    return (10.0, 40.0) if rng.random() < 0.85 else (2.0, 10.0)


def _variant(rng: np.random.Generator, name: str) -> str:
    choices = {
        "nanogpt": ("", "", "", "without-mfu"),
        "build-nanogpt": ("", "", "file"),
        "llmc": ("", "", "file"),
        "hf": ("numbers", "strings"),
        "modded-current": ("", "seconds"),
    }.get(name, ("",))
    return str(rng.choice(choices))


def _schedule(rng: np.random.Generator, profile: Profile, draft: Draft, steps: int) -> Schedule:
    """6e-4 at 768 wide and half a million tokens a step, less for wider models and smaller steps (root)."""
    share = min(1.0, draft.tokens_per_step / 2**19)
    peak = 6e-4 * (768 / draft.shape.n_embd) ** 0.75 * share**0.5 * float(rng.uniform(0.8, 1.2))
    if draft.shape.vocab_size < CHARACTERS:
        # Character models are trained hotter: nanoGPT's recipe has 1e-3 at 16,384 characters a step.
        peak = min(1e-3, 2 * peak)
    peak = min(1.5e-3, float(f"{peak:.1g}"))
    warmup = max(10, round(steps * rng.uniform(0.01, 0.06) / 10) * 10)
    return Schedule(
        shape=profile.schedule,
        peak=peak,
        floor=float(f"{peak * profile.floor:.2g}"),
        warmup=warmup,
        decay_steps=steps,
        cooldown=0.65 if profile.family == "nanochat" else 0.4,
        first=profile.warmup_first,
    )


def _initial_loss(rng: np.random.Generator, profile: Profile, shape: Shape) -> float:
    """ln(vocabulary), and half the variance of logits that are sums of n_embd products of scale 0.02."""
    logits_variance = 0.0 if profile.zero_head else shape.n_embd * 0.02**2
    return float(np.log(shape.vocab_size) + 0.5 * logits_variance + rng.normal(0.0, 0.004))

"""Draws the parts of a healthy run: a model, a device for it, how well it is used, and a batch that fits."""

import numpy as np

from tests.simulator.devices import ALL, BY_NAME, GIB, Device
from tests.simulator.formats import Profile
from tests.simulator.shapes import Shape
from tests.simulator.wishes import Wishes

NICE_MICRO_BATCHES = (1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64)
NICE_ACCUMULATIONS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64)


def log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def draw_shape(rng: np.random.Generator, profile: Profile, wishes: Wishes) -> Shape | None:
    vocabulary = wishes.vocabulary or int(rng.choice(profile.vocabularies))
    low, high = wishes.parameters or profile.parameters
    if wishes.vocabulary is None and vocabulary == -1:
        vocabulary, high = int(rng.integers(58, 200)), min(high, 2e7)
    elif vocabulary == 0:
        vocabulary, high = int(rng.choice([512, 1024, 2048, 4096, 8192, 16384])), min(high, 2e8)
    if low > high:
        return None
    size = log_uniform(rng, low, high)
    context = wishes.block_size or int(
        rng.choice([256, 512] if size < 2e7 else [512, 1024, 1024, 1024, 2048])
    )
    if profile.shape:
        layers, heads, width = profile.shape
    else:
        layers, heads, width = _proportions(rng, size, vocabulary)
    if profile.family == "nanochat":
        heads = max(1, width // 128)
        width, layers, context = heads * 128, max(4, 2 * (layers // 2)), wishes.block_size or 2048
    if profile.bias and profile.vocabularies[0] in (50304, 50257) and wishes.block_size is None:
        context = 1024
    shape = Shape(
        family=profile.family,
        n_layer=layers,
        n_head=heads,
        n_embd=width,
        block_size=context,
        vocab_size=vocabulary,
        bias=profile.bias,
    )
    slack = 1.6 if profile.family == "nanochat" else 1.25
    if not low / slack <= shape.parameters <= high * slack:
        return None
    usual = (0.0, 1.0) if profile.shape or profile.family == "nanochat" else (0.0, 0.49)
    least, most = wishes.embedding_share or usual
    return shape if least <= shape.embedding_share <= most else None


def _proportions(rng: np.random.Generator, size: float, vocabulary: int) -> tuple[int, int, int]:
    """Layers, heads and width of a model of about `size` parameters: width 40 to 90 times the depth."""
    aspect = float(rng.uniform(40, 90))
    width = (size * aspect / 12) ** (1 / 3)
    for _ in range(12):
        body = max(0.2 * size, size - vocabulary * width)
        width = 0.5 * (width + (body * aspect / 12) ** (1 / 3))
    head = 32 if width < 224 else 128 if width > 900 and rng.random() < 0.3 else 64
    width = max(2, round(width / head)) * head
    layers = max(3, round((size - vocabulary * width) / (12 * width**2)))
    return layers, width // head, width


def draw_device(rng: np.random.Generator, profile: Profile, wishes: Wishes, shape: Shape) -> Device | None:
    if wishes.devices:
        return BY_NAME[str(rng.choice(wishes.devices))]
    kinds = wishes.kinds or profile.kinds
    size = shape.parameters
    fitting = [
        device
        for device in ALL
        if device.kind in kinds
        and device.name in (profile.devices or BY_NAME)
        and (device.bf16 or not profile.needs_bf16)
        and (device.kind != "cpu" or size < 1.2e7)
        and (device.kind != "datacenter" or size > 5e6)
        and 22 * size < 0.8 * device.memory_gib * GIB
    ]
    if not fitting:
        return None
    return fitting[int(rng.integers(len(fitting)))]


def draw_efficiency(rng: np.random.Generator, device: Device, shape: Shape, wishes: Wishes) -> float:
    """The true MFU that such a model reaches there: 0.35 to 0.65 from 100M parameters on, less below."""
    if wishes.efficiency:
        return float(rng.uniform(*wishes.efficiency))
    if device.kind == "cpu":
        return float(rng.uniform(0.12, 0.4))
    value = float(rng.uniform(0.55, 0.75)) * device.reachable
    if shape.counted >= 1e8:
        return float(np.clip(value, 0.36, 0.65))
    small = (shape.counted / 1e8) ** (0.3 if device.kind == "consumer" else 0.45)
    return value * float(max(0.08, small))


def draw_batch(
    rng: np.random.Generator,
    profile: Profile,
    shape: Shape,
    device: Device,
    count: int,
    tokens: float,
    wishes: Wishes,
) -> tuple[int, int] | None:
    """Micro-batch and accumulation: near half a million tokens a step at 1.3 billion tokens, less for less.

    The exponent 0.383 is Power Lines' (arXiv 2505.13738); no fewer than 1,500 steps.
    """
    wanted = min(2**19 * (tokens / 1.3e9) ** 0.383 * rng.uniform(0.5, 1.1), tokens / 1500, 2**19)
    if wishes.tokens_per_step:
        wanted = log_uniform(rng, *wishes.tokens_per_step)
    sequences = wanted / shape.block_size / count
    largest = largest_micro_batch(shape, device)
    least = 1 if wishes.micro_batch or wishes.devices else profile.least_micro_batch
    largest = min(largest, wishes.micro_batch or largest, sequences)
    choices = [micro for micro in NICE_MICRO_BATCHES if least <= micro <= largest]
    if not choices:
        return None
    micro = int(
        choices[-1] if rng.random() < 0.5 else choices[max(0, len(choices) - 1 - int(rng.integers(3)))]
    )
    if shape.parameters >= 1e8 and micro * shape.block_size < 4096 and not wishes.micro_batch:
        return None
    accumulation = max(nice for nice in NICE_ACCUMULATIONS if nice <= max(1, sequences / micro))
    return micro, accumulation * count


def largest_micro_batch(shape: Shape, device: Device) -> int:
    """By memory: 18 bytes a parameter; 38·n_embd a layer and 12·vocab_size a token (eager autocast)."""
    free = 0.8 * device.memory_gib * GIB - 18 * shape.total
    per_sequence = shape.block_size * (38 * shape.n_layer * shape.n_embd + 12 * shape.vocab_size)
    return int(free / per_sequence)

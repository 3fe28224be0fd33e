"""How a CPU multiplies matrices: the quickest way for this model, timed at start.

Where a CPU has bfloat16, that halves the bytes of a product and, in hardware, about doubles its rate. Against
it stand the casts of every input, and torch's attention, whose backward pass on a CPU can take several times
as long in bfloat16 as in float32. Our own kernels (`gptwright.model.fused`) have neither, where they can be
built; on a CPU without bfloat16 they work in float32. Which way is the quickest depends on the CPU and on the
model, so a block and the output head are timed in each that the settings leave open. Weights, gradients,
norms and the loss stay in float32 in all.

A resumed run keeps the way that it had on this device: another would not end in the same weights.

One thread is timed: beside busy processes several wait for each other, and a time says little of the work
(docs/lab-notes.md).

Cost: nothing where there is one way; else rounds of all ways until `SECONDS` are over, at least two.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import torch
from torch.nn import functional as F

from gptwright.arithmetic.shape import ModelShape
from gptwright.config.schema import TrainConfig
from gptwright.errors import DeviceError
from gptwright.facts import Fact, Origin
from gptwright.hardware.detect import Device
from gptwright.hardware.kernels import dtype_of_kernels, setting_against_kernels
from gptwright.kernels.library import Missing, load_kernels
from gptwright.model.attention import CausalSelfAttention
from gptwright.model.fused.loss import fused_loss
from gptwright.model.gpt import GPT
from gptwright.train.precision import Precision
from gptwright.train.threads import using_threads

# The budget of the measurement; a round that has begun is finished.
SECONDS, MOST_ROUNDS = 4.0, 6
# bfloat16 must be quicker than float32 by so much to be worth its rounding, and torch's float32 than ours to
# be taken instead.
WORTH = 1.1
# What is timed: a block over whole windows of at most so many tokens, the head over fewer.
BLOCK_TOKENS, HEAD_TOKENS = 1024, 256


Dtype = Literal["float32", "bfloat16"]


@dataclass(frozen=True, slots=True)
class Way:
    """How a step multiplies.

    Attributes:
        dtype: of the products, `float32` or `bfloat16`.
        float32_attention: whether attention is computed in float32 nevertheless.
        kernels: whether our own kernels do what is between the products.
    """

    dtype: Dtype
    float32_attention: bool = False
    kernels: bool = False

    def applied(self, config: TrainConfig) -> TrainConfig:
        """Settings that ask for this way and no other."""
        attention: Literal["float32", "dtype"] = "float32" if self.float32_attention else "dtype"
        return replace(config, dtype=self.dtype, attention_dtype=attention, kernels=self.kernels)

    def __str__(self) -> str:
        if self.kernels:
            return f"{self.dtype} with our own kernels"
        return f"{self.dtype} with attention in float32" if self.float32_attention else self.dtype


@dataclass(frozen=True, slots=True)
class Choice:
    """A way, where the choice comes from, and why it was made."""

    way: Way
    origin: Origin
    reason: str

    def facts(self) -> list[Fact]:
        """The choice for the start-up table."""
        attention = "float32" if self.way.float32_attention else self.way.dtype
        values = {"dtype": self.way.dtype, "attention_dtype": attention, "kernels": self.way.kernels}
        return [
            Fact(name=name, value=value, text=str(value), origin=self.origin, reason=self.reason)
            for name, value in values.items()
        ]


FLOAT32, BFLOAT16, MIXED = Way("float32"), Way("bfloat16"), Way("bfloat16", float32_attention=True)
KERNELS = {dtype: Way(dtype, kernels=True) for dtype in get_args(Dtype)}


def choose_way(
    config: TrainConfig, shape: ModelShape, device: Device, *, before: Mapping[str, Any]
) -> Choice | None:
    """The quickest way that the settings allow; None where there is nothing to choose.

    Args:
        config: the settings; `dtype` and `attention_dtype` leave it open with `auto`.
        shape: of the model.
        device: where.
        before: what `run.json` says of how the run computed, if it goes on on the same device.

    Raises:
        DeviceError: our own kernels are asked for and cannot be had here.
    """
    narrow = "bfloat16" in device.native_dtypes
    own = KERNELS[dtype_of_kernels(config, bfloat16=narrow)]
    missing = _no_kernels(config, own.dtype, device)
    if config.kernels is True and missing:
        raise DeviceError(
            "kernels = True cannot be done here", why=missing, fix="--kernels=auto, which does without them"
        )
    if device.type != "cpu":
        return None
    if config.kernels is True:
        return Choice(own, Origin.CONFIGURED, "asked for")
    torchs = [way for way in (FLOAT32, BFLOAT16, MIXED) if _allowed(way, config)]
    open_ = [way for way in torchs if narrow or way == FLOAT32] + ([] if missing else [own])
    # A run of a version that did not choose was in float32, and one before there were kernels had none.
    kept = ("dtype", "float32"), ("float32_attention", False), ("kernels", False)
    had = Way(*(before.get(name, without) for name, without in kept)) if before else None
    if len(open_) < 2:
        lost = bool(open_ and had and had.kernels and missing)
        return Choice(open_[0], Origin.DERIVED, f"not as this run had: {missing}") if lost else None
    if had in open_:
        return Choice(had, Origin.LOGGED, "as this run had; --dtype=… for another")
    # torch's own ways in bfloat16 were slower than our kernels at every size tried (docs/lab-notes.md).
    worth = [way for way in open_ if way in (FLOAT32, own)] if own in open_ else open_
    seconds = seconds_of_ways(worth, shape, device, rows=config.batch_size)
    quickest = min(worth, key=lambda way: seconds[way])
    if FLOAT32 in seconds and quickest.dtype == "bfloat16" and seconds[quickest] * WORTH > seconds[FLOAT32]:
        quickest = FLOAT32
    # Where nothing is rounded two runs shall not differ by what a clock happened to say.
    if quickest == FLOAT32 and own in worth and own.dtype == "float32":
        quickest = FLOAT32 if seconds[own] > WORTH * seconds[FLOAT32] else own
    times = ", ".join(f"{1e6 * taken:.1f} µs in {way}" for way, taken in seconds.items())
    return Choice(quickest, Origin.MEASURED, f"forward and backward of a token took {times}")


def _no_kernels(config: TrainConfig, dtype: Dtype, device: Device) -> str | None:
    """Why our own kernels of a dtype cannot make this run's steps, if they cannot."""
    if device.type != "cpu":
        return f"they are for a CPU, and {device.name} is none"
    if (against := setting_against_kernels(config, dtype)) is not None:
        return against
    found = load_kernels(getattr(torch, dtype))
    return found.reason if isinstance(found, Missing) else None


def _allowed(way: Way, config: TrainConfig) -> bool:
    if config.dtype not in ("auto", way.dtype):
        return False
    asked = config.attention_dtype
    return asked == "auto" or way == FLOAT32 or way.float32_attention == (asked == "float32")


def seconds_of_ways(
    ways: list[Way], shape: ModelShape, device: Device, *, rows: int, budget: float = SECONDS
) -> dict[Way, float]:
    """The least time of a token's forward and backward pass in each way, all layers and the head counted.

    All take turns, so that what disturbs one round disturbs all. The first round of a shape is not alone
    trusted: torch prepares its products in it, and memory is touched for the first time. No draw of random
    numbers is used up.

    Args:
        ways: what to time.
        shape: of the model.
        device: a CPU.
        rows: sequences of a micro-batch.
        budget: seconds.
    """
    rounds: list[dict[Way, float]] = []
    kernels = any(way.kernels for way in ways)
    with using_threads(1), torch.random.fork_rng(devices=[]):
        # What torch loads with the first pass of a process is no cost of a way.
        nothing = _Parts(replace(shape, n_head=1, n_embd=8, block_size=2, vocab_size=8), 1, kernels=kernels)
        for way in ways:
            nothing.seconds_a_token(way, device)
        begin, parts = time.perf_counter(), _Parts(shape, rows, kernels=kernels)
        while len(rounds) < 2 or (len(rounds) < MOST_ROUNDS and time.perf_counter() - begin < budget):
            rounds.append({way: parts.seconds_a_token(way, device) for way in ways})
    return {way: min(round_[way] for round_ in rounds) for way in ways}


class _Parts:
    """A block and the output head of a model, with what goes into them.

    Args:
        shape: of the model.
        rows: sequences of a micro-batch; fewer where their tokens are too many.
        kernels: whether our own are among the ways.
    """

    def __init__(self, shape: ModelShape, rows: int, *, kernels: bool) -> None:
        self.n_layer = shape.n_layer
        self.model = GPT(replace(shape, n_layer=1, kernels=kernels))
        (self.block,) = self.model.transformer["h"].children()
        rows = max(1, min(rows, BLOCK_TOKENS // shape.block_size))
        context = min(shape.block_size, BLOCK_TOKENS)
        self.x_BTC = torch.randn(rows, context, shape.n_embd, requires_grad=True)
        self.head_NC = torch.randn(min(rows * context, HEAD_TOKENS), shape.n_embd, requires_grad=True)
        self.targets_N = torch.zeros(len(self.head_NC), dtype=torch.int64)

    def seconds_a_token(self, way: Way, device: Device) -> float:
        """Of the whole model's forward and backward pass."""
        precision = Precision(device, way.dtype)
        attention = self.block.get_submodule("attn")
        assert isinstance(attention, CausalSelfAttention)
        attention.in_float32 = way.float32_attention
        head = self.model.lm_head
        begin = time.perf_counter()
        with precision.autocast():
            recipe = self.model.recipe(self.x_BTC.shape[1]) if way.kernels else None
            y_BTC = self.block(self.x_BTC, layer=0, rotary=self.model.rotary, recipe=recipe)
        # A gradient handed in has torch import sympy: a second, and 33 MiB.
        torch.autograd.backward(y_BTC.mean())
        middle = time.perf_counter()
        with precision.autocast():
            if recipe is None:
                loss = F.cross_entropy(head(self.head_NC), self.targets_N)
            else:
                hidden_NC = self.head_NC.to(recipe.kernels.dtype)
                loss = fused_loss(hidden_NC, head.weight, self.targets_N, recipe.kernels, None)
        torch.autograd.backward(loss)
        end = time.perf_counter()
        self.model.zero_grad(set_to_none=True)
        of_block, of_head = (middle - begin) / self.x_BTC[..., 0].numel(), (end - middle) / len(self.head_NC)
        return self.n_layer * of_block + of_head

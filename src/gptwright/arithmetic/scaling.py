"""Scaling laws: how much loss size and data cost, and what a compute budget or repeated data is worth.

Every law here was fitted to one lab's data, tokenizer and recipe. Their absolute losses do not carry over: on
public GPT-2 runs over FineWeb they are 0.2 to 0.3 nats too low. Their differences carry over better, so only
differences are offered (`loss_terms`, `gain`), and the laws' disagreement is given as their uncertainty.

Parameters are counted as nanoGPT prints them unless a law says otherwise. Losses are in nats a token. None of
this holds for characters, nor for the rise of validation loss under memorization.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Band:
    """A quantity that is not known exactly: low and high, the likely value, and where they come from."""

    low: float
    likely: float
    high: float
    basis: str

    def __post_init__(self) -> None:
        assert self.low <= self.likely <= self.high, self


class Law(Protocol):
    """A fitted loss surface."""

    @property
    def name(self) -> str:
        """Short name of the fit."""

    @property
    def source(self) -> str:
        """Where its constants were read."""

    def loss(self, parameters: float, tokens: float) -> float:
        """Nats a token; to be used in differences only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdditiveLaw:
    """E + A / parameters^a + B / tokens^b.

    Attributes:
        name: short name of the fit.
        irreducible: E, nats.
        capacity_scale: A.
        capacity_exponent: a.
        data_scale: B.
        data_exponent: b.
        source: where the constants were read.
    """

    name: str
    irreducible: float
    capacity_scale: float
    capacity_exponent: float
    data_scale: float
    data_exponent: float
    source: str

    def capacity_term(self, parameters: float) -> float:
        """What the model's finite size costs, in nats."""
        return float(self.capacity_scale / parameters**self.capacity_exponent)

    def data_term(self, tokens: float) -> float:
        """What the finite number of tokens costs, in nats."""
        return float(self.data_scale / tokens**self.data_exponent)

    def loss(self, parameters: float, tokens: float) -> float:
        """Nats a token; to be used in differences only."""
        return self.irreducible + self.capacity_term(parameters) + self.data_term(tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class KaplanLaw:
    """[(Nc / parameters)^(aN / aD) + Dc / tokens]^aD, parameters without embeddings.

    Attributes:
        name: short name of the fit.
        parameter_scale: Nc.
        parameter_exponent: aN.
        data_scale: Dc, tokens.
        data_exponent: aD.
        source: where the constants were read.
    """

    name: str
    parameter_scale: float
    parameter_exponent: float
    data_scale: float
    data_exponent: float
    source: str

    def loss(self, parameters: float, tokens: float) -> float:
        """Nats a token for `parameters` without embeddings; to be used in differences only."""
        capacity = (self.parameter_scale / parameters) ** (self.parameter_exponent / self.data_exponent)
        return float((capacity + self.data_scale / tokens) ** self.data_exponent)


HOFFMANN_ROUNDED = AdditiveLaw(
    name="Hoffmann 2022, as printed",
    irreducible=1.69,
    capacity_scale=406.4,
    capacity_exponent=0.34,
    data_scale=410.7,
    data_exponent=0.28,
    source="arXiv 2203.15556, equation 10; rounding moves the loss of a 124M model by 0.05 nats",
)
HOFFMANN = AdditiveLaw(
    name="Hoffmann 2022, unrounded",
    irreducible=math.exp(0.5267228),
    capacity_scale=math.exp(6.0073404),
    capacity_exponent=0.33917084,
    data_scale=math.exp(6.0179186),
    data_exponent=0.2849083,
    source="arXiv 2203.15556; digits from the sources of arXiv 2404.10102 and Epoch's notebook",
)
BESIROGLU = AdditiveLaw(
    name="Besiroglu 2024",
    irreducible=1.8169,
    capacity_scale=482.01,
    capacity_exponent=0.3478,
    data_scale=2085.43,
    data_exponent=0.3658,
    source="arXiv 2404.10102, a refit of Hoffmann's data",
)
MUENNIGHOFF = AdditiveLaw(
    name="Muennighoff 2023",
    irreducible=math.exp(0.6254804),
    capacity_scale=math.exp(6.255414),
    capacity_exponent=0.3526596,
    data_scale=math.exp(7.3049974),
    data_exponent=0.3526596,
    source="arXiv 2305.16264, constants of huggingface/datablations",
)
KAPLAN = KaplanLaw(
    name="Kaplan 2020",
    parameter_scale=6.4e13,
    parameter_exponent=0.076,
    data_scale=1.8e13,
    data_exponent=0.103,
    source="arXiv 2001.08361, table 2, as four independent summaries quote it",
)
ADDITIVE_LAWS = (HOFFMANN_ROUNDED, HOFFMANN, BESIROGLU, MUENNIGHOFF)

# A pass over data that was seen before loses value with this constant: R_D* of arXiv 2305.16264, digits of
# huggingface/datablations.
REPEAT_HALF_LIFE = 15.387756
# Up to as many passes a repeated token is worth a fresh one (arXiv 2305.16264); beyond, the number of tokens
# seen says less and less about how much was learned.
FRESH_PASSES = 4
# The most passes that are planned without a look at validation: the next one is worth 0.38 of a fresh one.
MOST_PASSES = 16

# The fitted optimum at 1e17 to 1e20 FLOPs is 15 to 40 tokens a parameter by Hoffmann, 23 to 27 by Besiroglu,
# 20 by Muennighoff, and 10 to 11 measured in nanochat's sweep; past 1e19, which is more than one consumer
# card does in weeks, only the rounded Hoffmann fit goes above 30.
TOKENS_PER_PARAMETER = Band(
    10.0,
    20.0,
    30.0,
    "Hoffmann, Besiroglu, Muennighoff and nanochat's sweep; what counts as a parameter differs, and the "
    "optimum is flat",
)


# GPT-3's table (Brown et al. 2020): the learning rate of its smallest model, its width, and tokens a step.
GPT3_RATE, GPT3_WIDTH, GPT3_BATCH = 6e-4, 768, 2**19


def loss_terms(law: AdditiveLaw, parameters: float, tokens: float) -> tuple[float, float]:
    """What finite size and finite data cost by `law`, in nats: only their differences carry over.

    Args:
        law: which fit.
        parameters: nanoGPT's count.
        tokens: training tokens; for repeated data give `effective_tokens`.
    """
    return law.capacity_term(parameters), law.data_term(tokens)


def best_batch(tokens: float) -> float:
    """Tokens a step that suit a run of so many tokens: 2^18 at 0.44B, as D^0.383 (arXiv 2505.13738)."""
    return float(2**18 * (tokens / 0.44e9) ** 0.383)


def critical_batch(loss: float) -> float:
    """Tokens a step up to which a larger batch costs few tokens more, at `loss` nats over GPT-2's vocabulary.

    2.1e8 / loss^(1 / 0.21) (arXiv 2001.08361, equation 1.4 and appendix A, as independent summaries quote
    it): 0.54M tokens at 3.5 nats. At a batch B the same loss takes 1 + B / critical times the tokens that the
    smallest batch takes.
    """
    return float(2.1e8 / loss ** (1 / 0.21))


def effective_tokens(*, unique: float, total: float) -> float:
    """How many fresh tokens `total` tokens drawn from `unique` ones are worth for the data term.

    U + U·R·(1 − exp(−r / R)) with r repeats after the first pass and R = 15.39 (arXiv 2305.16264,
    equation 5). It never falls with more passes, so it cannot show memorization.
    """
    repeats = max(total / unique - 1, 0.0)
    return min(total, unique) + unique * REPEAT_HALF_LIFE * -math.expm1(-repeats / REPEAT_HALF_LIFE)


def value_of_next_pass(epochs: float) -> float:
    """What a token of the next pass is worth after `epochs` passes, against a fresh one."""
    return math.exp(-max(epochs - 1, 0.0) / REPEAT_HALF_LIFE) if epochs >= 1 else 1.0


def gain(law: Law, parameters: float, tokens_before: float, tokens_after: float) -> float:
    """Nats that more tokens take off the loss of a model of one size, by `law`."""
    return law.loss(parameters, tokens_before) - law.loss(parameters, tokens_after)


def gain_from_size(law: Law, tokens: float, parameters_before: float, parameters_after: float) -> float:
    """Nats that more parameters take off the loss at the same tokens, by `law`."""
    return law.loss(parameters_before, tokens) - law.loss(parameters_after, tokens)


def gain_band(
    parameters: float,
    tokens_before: float,
    tokens_after: float,
    *,
    non_embedding: float | None = None,
    laws: Sequence[AdditiveLaw] = ADDITIVE_LAWS,
) -> Band:
    """Nats that more tokens take off, over the laws.

    The additive laws overstate what tokens give a small model, Kaplan's understates it: a GPT-2 of 124M
    gained 0.072 from three passes over 10B tokens of FineWeb-Edu instead of one (github hitkumar/llms,
    gpt2_karpathy/experiment_log.md), where they say 0.14 to 0.17 and 0.015. So Kaplan's joins as one end if
    `non_embedding` is given, and the likely value is the middle.
    """
    gains = [gain(law, parameters, tokens_before, tokens_after) for law in laws]
    if non_embedding is not None:
        gains.append(gain(KAPLAN, non_embedding, tokens_before, tokens_after))
    return _over_laws(gains, laws, kaplan=non_embedding is not None)


def size_gain_band(
    tokens: float,
    parameters: tuple[float, float],
    *,
    non_embedding: tuple[float, float] | None = None,
    laws: Sequence[AdditiveLaw] = ADDITIVE_LAWS,
) -> Band:
    """Nats that going from one size to another takes off at the same tokens, over the laws.

    Args:
        tokens: training tokens of both.
        parameters: before and after, nanoGPT's count.
        non_embedding: before and after without embeddings; Kaplan's law joins in if given.
        laws: the additive ones.
    """
    gains = [gain_from_size(law, tokens, *parameters) for law in laws]
    if non_embedding is not None:
        gains.append(gain_from_size(KAPLAN, tokens, *non_embedding))
    return _over_laws(gains, laws, kaplan=non_embedding is not None)


def _over_laws(gains: list[float], laws: Sequence[AdditiveLaw], *, kaplan: bool) -> Band:
    low, high = min(gains), max(gains)
    names = [law.name for law in laws] + ([KAPLAN.name] if kaplan else [])
    return Band(low, (low + high) / 2, high, "spread over " + ", ".join(names))

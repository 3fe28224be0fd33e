"""Scaling laws: the published constants, and only their differences."""

import math
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gptwright.arithmetic.scaling import (
    ADDITIVE_LAWS,
    BESIROGLU,
    HOFFMANN,
    HOFFMANN_ROUNDED,
    KAPLAN,
    MUENNIGHOFF,
    AdditiveLaw,
    Band,
    Law,
    critical_batch,
    effective_tokens,
    gain,
    gain_band,
    gain_from_size,
    loss_terms,
    size_gain_band,
    value_of_next_pass,
)


@pytest.mark.parametrize(
    ("law", "parameters", "tokens", "loss"),
    [
        (HOFFMANN_ROUNDED, 124_475_904, 10.26e9, 3.055),
        (BESIROGLU, 124_475_904, 10.26e9, 3.008),
        (MUENNIGHOFF, 124_475_904, 10.26e9, 3.035),
        (KAPLAN, 85_056_000, 10.26e9, 2.82),
        (HOFFMANN_ROUNDED, 354_871_296, 31.5e9, 2.666),
        (BESIROGLU, 354_871_296, 31.5e9, 2.630),
        (MUENNIGHOFF, 354_871_296, 31.5e9, 2.667),
        (KAPLAN, 302_311_424, 31.5e9, 2.557),
    ],
)
def test_the_laws_give_what_others_computed_with_them(
    law: Law, parameters: float, tokens: float, loss: float
) -> None:
    assert law.loss(parameters, tokens) == pytest.approx(loss, abs=0.003)


def test_the_narrow_run_is_limited_by_its_size() -> None:
    # 12 layers of 384 after 7.60B tokens: size costs about 1.05 nats, data 0.70, by the fit as printed
    capacity, data = loss_terms(HOFFMANN_ROUNDED, 40_560_000, 7.60e9)
    assert (round(capacity, 2), round(data, 2)) == (1.05, 0.70)


def optimal_parameters(law: AdditiveLaw, flops: float) -> float:
    """The size with the lowest loss for 6 × parameters × tokens FLOPs, where the derivative along them is 0:
    (aA / bB)^(1 / (a + b)) × (flops / 6)^(b / (a + b)).
    """
    a, b = law.capacity_exponent, law.data_exponent
    ratio = (a * law.capacity_scale / (b * law.data_scale)) ** (1 / (a + b))
    return float(ratio * (flops / 6) ** (b / (a + b)))


def test_rounding_the_printed_constants_costs_half_a_tenth() -> None:
    apart = HOFFMANN_ROUNDED.loss(124e6, 10.26e9) - HOFFMANN.loss(124e6, 10.26e9)
    assert apart == pytest.approx(0.05, abs=0.01)


@pytest.mark.parametrize(
    ("law", "ratios"),
    [
        (HOFFMANN_ROUNDED, (20.5, 25.7, 32.0, 40.0)),
        (HOFFMANN, (15.0, 18.6, 22.7, 27.8)),
        (BESIROGLU, (27.0, 25.7, 24.2, 22.9)),
        (MUENNIGHOFF, (19.6, 19.6, 19.6, 19.6)),
    ],
)
def test_tokens_a_parameter_at_the_optimum(law: AdditiveLaw, ratios: tuple[float, ...]) -> None:
    for flops, ratio in zip((1e17, 1e18, 1e19, 1e20), ratios, strict=True):
        parameters = optimal_parameters(law, flops)
        assert flops / 6 / parameters**2 == pytest.approx(ratio, rel=0.02)


@pytest.mark.parametrize("law", ADDITIVE_LAWS, ids=lambda law: law.name)
def test_the_optimum_is_the_lowest_loss_of_its_budget(law: AdditiveLaw) -> None:
    flops = 1e18
    best = optimal_parameters(law, flops)
    lowest = law.loss(best, flops / 6 / best)
    for factor in (0.5, 0.9, 1.1, 2.0):
        assert law.loss(best * factor, flops / 6 / (best * factor)) > lowest


@pytest.mark.parametrize(
    ("epochs", "value"), [(1, 1.0), (2, 0.98), (4, 0.93), (8, 0.83), (16, 0.66), (40, 0.38), (80, 0.20)]
)
def test_what_a_repeated_token_is_worth(epochs: float, value: float) -> None:
    assert effective_tokens(unique=1.0, total=epochs) / epochs == pytest.approx(value, abs=0.005)


def test_no_number_of_passes_is_worth_more_than_16_times_the_data() -> None:
    assert effective_tokens(unique=1e6, total=1e12) == pytest.approx(16.4e6, rel=0.001)
    assert effective_tokens(unique=1e6, total=3e5) == 3e5


@given(unique=st.floats(1e5, 1e11), epochs=st.floats(0.01, 200))
def test_repeated_tokens_are_worth_something_and_never_more_than_fresh_ones(
    unique: float, epochs: float
) -> None:
    worth = effective_tokens(unique=unique, total=unique * epochs)
    more = effective_tokens(unique=unique, total=unique * epochs * 1.01)
    assert 0 < worth <= unique * epochs * (1 + 1e-12)
    assert worth <= more
    # the next token's worth is the slope
    assert (more - worth) / (unique * epochs * 0.01) == pytest.approx(
        value_of_next_pass(epochs), rel=0.07, abs=1e-9
    )


def test_gains_are_differences_of_losses() -> None:
    assert gain(BESIROGLU, 1e8, 1e9, 2e9) == pytest.approx(
        BESIROGLU.data_term(1e9) - BESIROGLU.data_term(2e9)
    )
    assert gain_from_size(BESIROGLU, 1e9, 1e8, 2e8) == pytest.approx(
        BESIROGLU.capacity_term(1e8) - BESIROGLU.capacity_term(2e8)
    )


def test_the_laws_stand_on_both_sides_of_what_was_measured() -> None:
    # 124M over FineWeb-Edu, one pass over 10B tokens against three: 3.0430 and 2.9711
    three = effective_tokens(unique=1e10, total=3e10)
    tokens = gain_band(123.7e6, 1e10, three, non_embedding=85e6)
    assert tokens.low < 0.0719 < tokens.high
    assert tokens.likely == pytest.approx(0.0719, abs=0.02)
    # OpenAI's 124M and 350M on OpenWebText, trained long on other data: 3.12 and 2.84
    size = size_gain_band(1e12, (123.7e6, 353.8e6), non_embedding=(85e6, 302e6))
    assert size.high == pytest.approx(0.28, abs=0.04)


def test_losses_over_other_text_are_not_offered() -> None:
    # 1 MB of characters 82 times: a law says 12 nats where uniform guessing is 4.2
    unique = effective_tokens(unique=1e6, total=82e6)
    assert MUENNIGHOFF.loss(10.65e6, unique) > math.log(65)


def test_the_critical_batch_is_half_a_million_tokens_at_three_and_a_half_nats() -> None:
    assert critical_batch(3.5) == pytest.approx(0.54e6, rel=0.01)
    assert critical_batch(3.3) == pytest.approx(0.71e6, rel=0.02)


def test_a_band_is_ordered() -> None:
    with pytest.raises(AssertionError):
        Band(2.0, 1.0, 3.0, "wrong")


def test_it_starts_without_numpy() -> None:
    rooms = "gptwright.arithmetic.scaling, gptwright.arithmetic.reference, gptwright.arithmetic.evaluation"
    code = f"import {rooms}, sys; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

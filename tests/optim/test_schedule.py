"""The learning rate of a step: exact values, and what holds for all settings."""

import math
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gptwright.config.schema import TrainConfig
from gptwright.optim.schedule import learning_rate


def config(**settings: Any) -> TrainConfig:
    """100 steps of warm-up, decaying from 1e-3 at 100 to 1e-4 at 1,100."""
    given_settings = {"learning_rate": 1e-3, "min_lr": 1e-4, "warmup_iters": 100, "lr_decay_iters": 1100}
    return TrainConfig(**given_settings | settings)


@pytest.mark.parametrize("shape", ["cosine", "linear", "wsd"])
def test_warm_up_is_linear_and_starts_above_zero(shape: str) -> None:
    rates = [learning_rate(config(lr_schedule=shape), step) for step in range(101)]
    assert rates[0] == 1e-3 / 101
    assert rates[49] == pytest.approx(1e-3 * 50 / 101, rel=1e-14)
    assert rates[99] == pytest.approx(1e-3 * 100 / 101, rel=1e-14)
    assert rates[100] == pytest.approx(1e-3, rel=1e-14)


def test_cosine_values() -> None:
    settings = config(lr_schedule="cosine")
    # 1/4, 1/3, 1/2, 2/3 of the way: cos is √½, ½, 0, −½
    assert learning_rate(settings, 350) == pytest.approx(1e-4 + 9e-4 * (1 + math.sqrt(0.5)) / 2, rel=1e-14)
    assert learning_rate(settings, 600) == pytest.approx(5.5e-4, rel=1e-14)
    thirds = config(lr_schedule="cosine", lr_decay_iters=1000)
    assert learning_rate(thirds, 400) == pytest.approx(1e-4 + 9e-4 * 3 / 4, rel=1e-14)
    assert learning_rate(thirds, 700) == pytest.approx(1e-4 + 9e-4 / 4, rel=1e-14)


@given(step=st.integers(100, 1100))
def test_cosine_is_the_square_of_the_half_angle(step: int) -> None:
    wanted = 1e-4 + 9e-4 * math.cos(math.pi * (step - 100) / 2000) ** 2
    assert learning_rate(config(lr_schedule="cosine"), step) == pytest.approx(wanted, rel=1e-12)


@given(step=st.integers(100, 1100))
def test_linear_is_a_line(step: int) -> None:
    wanted = 1e-4 * (step - 100) / 1000 + 1e-3 * (1100 - step) / 1000
    assert learning_rate(config(lr_schedule="linear"), step) == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize(
    ("step", "wanted"), [(100, 1e-3), (500, 1e-3), (880, 1e-3), (935, 7.75e-4), (990, 5.5e-4), (1100, 1e-4)]
)
def test_wsd_keeps_its_plateau_and_cools_down_in_a_line(step: int, wanted: float) -> None:
    settings = config(lr_schedule="wsd", cooldown_fraction=0.2)  # the last 220 of 1,100 steps
    assert learning_rate(settings, step) == pytest.approx(wanted, rel=1e-12)


def test_a_cooldown_over_everything_still_begins_after_the_warm_up() -> None:
    whole, linear = config(lr_schedule="wsd", cooldown_fraction=1.0), config(lr_schedule="linear")
    for step in (0, 99, 100, 101, 700, 1100):
        assert learning_rate(whole, step) == learning_rate(linear, step)


@pytest.mark.parametrize("shape", ["cosine", "linear", "wsd"])
@pytest.mark.parametrize("step", [1100, 1101, 5000, 10**9])
def test_from_the_end_of_the_decay_on_it_is_min_lr(shape: str, step: int) -> None:
    assert learning_rate(config(lr_schedule=shape), step) == 1e-4


@pytest.mark.parametrize("step", [0, 50, 100, 700, 5000])
def test_without_decay_it_is_constant(step: int) -> None:
    assert learning_rate(config(decay_lr=False), step) == 1e-3


def test_a_decay_that_ends_within_the_warm_up_drops_to_min_lr_after_it() -> None:
    settings = config(lr_decay_iters=40)
    assert learning_rate(settings, 99) == pytest.approx(1e-3 * 100 / 101)
    assert learning_rate(settings, 100) == 1e-4


def test_without_a_warm_up_the_first_step_has_the_highest() -> None:
    assert learning_rate(config(warmup_iters=0), 0) == 1e-3


@given(
    shape=st.sampled_from(["cosine", "linear", "wsd"]),
    highest=st.floats(1e-6, 1.0),
    lowest_share=st.floats(0.0, 1.0),
    warmup=st.integers(0, 50),
    decay=st.integers(1, 200),
    cooldown=st.floats(0.01, 1.0),
)
def test_it_rises_to_the_highest_and_falls_to_the_lowest(
    shape: str, highest: float, lowest_share: float, warmup: int, decay: int, cooldown: float
) -> None:
    settings = config(
        lr_schedule=shape,
        learning_rate=highest,
        min_lr=highest * lowest_share,
        warmup_iters=warmup,
        lr_decay_iters=warmup + decay,
        cooldown_fraction=cooldown,
    )
    rates = [learning_rate(settings, step) for step in range(warmup + decay + 3)]
    rounding = 1 + 1e-12
    assert all(0 < before < after <= highest * rounding for before, after in pairwise(rates[: warmup + 1]))
    assert all(after <= before * rounding for before, after in pairwise(rates[warmup:]))
    assert rates[warmup] == pytest.approx(highest, rel=1e-12)
    assert rates[-1] == settings.min_lr
    assert min(rates[warmup:]) * rounding >= settings.min_lr

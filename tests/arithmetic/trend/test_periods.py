"""Validation that swings with the shards, and validation that does not."""

import numpy as np
import pytest

from gptwright.arithmetic.trend import periodicity
from tests.arithmetic.trend.curves import evaluation_curve, log_uniform
from tests.conftest import LONG


@pytest.mark.slow
def test_healthy_curves_have_no_period_in_998_of_1000() -> None:
    rng = np.random.default_rng(1)
    runs, found = 5000 if LONG else 1000, 0
    for _ in range(runs):
        curve = evaluation_curve(rng, int(log_uniform(rng, 16, 400)), log_uniform(rng, 0.002, 0.1))
        found += periodicity(curve.steps, curve.draw(rng)) is not None
    assert found <= runs // 500


@pytest.mark.parametrize("saw", [False, True])
def test_planted_periods_are_found(saw: bool) -> None:
    rng = np.random.default_rng(2)
    found = 0
    for _ in range(100):
        points = int(rng.integers(60, 300))
        sd = log_uniform(rng, 0.002, 0.03)
        curve = evaluation_curve(rng, points, sd)
        spacing = curve.steps[1] - curve.steps[0]
        period = rng.uniform(5, points / 6) * spacing
        phase = curve.steps / period + rng.random()
        wave = (phase % 1) * 12 * sd if saw else np.sin(2 * np.pi * phase) * 3 * sd
        swing = periodicity(curve.steps, curve.draw(rng) + wave)
        found += swing is not None and abs(swing.steps / period - 1) < 0.1
    assert found >= 95


def test_what_it_says() -> None:
    rng = np.random.default_rng(3)
    steps = np.arange(250, 25_001, 250)
    swing = periodicity(steps, 3 + 0.02 * np.sin(steps / 2000 * 2 * np.pi) + rng.normal(0, 0.003, 100))
    assert swing is not None
    assert swing.steps == pytest.approx(2000, rel=0.01)
    assert swing.amplitude == pytest.approx(0.02, rel=0.1)
    assert swing.false_alarm_probability < 1e-10


def test_a_single_bump_is_no_period() -> None:
    steps = np.arange(100)
    rng = np.random.default_rng(4)
    bump = 0.2 * np.exp(-(((steps - 60) / 6) ** 2))
    assert periodicity(steps, 3 + bump + rng.normal(0, 0.003, 100)) is None


def test_short_and_flat_series() -> None:
    assert periodicity(np.arange(15), np.arange(15.0)) is None
    assert periodicity(np.arange(50), np.full(50, 3.0)) is None


def test_a_steep_start_hides_no_period() -> None:
    """The first evaluations of a GPT-2 run fall from 10.95 to 4: no polynomial follows both them and the rest
    (llm.c's public curve, every 100 steps, with a swing of ±0.08 in 800 steps).
    """
    public = ((0, 10.95), (250, 6.17), (500, 5.37), (750, 4.71), (1000, 4.35), (2000, 3.86), (4000, 3.62))
    steps = np.arange(0, 4801, 100)
    places, losses = zip(*public, strict=True)
    trend = np.interp(steps, places, losses)
    noise = np.random.default_rng(3).normal(0, 0.004, len(steps))
    swing = 0.08 * np.sin(2 * np.pi * steps / 800)
    period = periodicity(steps, trend + noise + swing)
    assert period is not None
    assert period.steps == pytest.approx(800, rel=0.05)


def test_many_evaluations_at_the_end_are_not_the_whole_run() -> None:
    """A smooth fall, evaluated every 100 steps and in the last twentieth every two: a trend that is fitted to
    the crowd at the end bends everywhere else.
    """
    steps = np.concatenate([np.arange(100, 3001, 100), np.arange(3002, 3201, 2)])
    decay = 0.12 * np.maximum(steps - 1000, 0) / 2200
    losses = 3.2 + 60 / (steps + 40.0) - decay - 0.02 * (steps / 3200) ** 8
    assert periodicity(steps, losses + np.random.default_rng(6).normal(0, 2e-4, len(steps))) is None

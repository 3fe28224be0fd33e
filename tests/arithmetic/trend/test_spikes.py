"""Spikes and rises: found where they are planted, and nowhere else."""

import numpy as np
import pytest

from gptwright.arithmetic.trend import find_rise, find_spikes
from tests.arithmetic.trend.curves import Curve, log_uniform, training_curve
from tests.conftest import LONG


def _healthy(seed: int, runs: int) -> tuple[int, int]:
    rng = np.random.default_rng(seed)
    spikes = rises = 0
    for _ in range(runs):
        curve = training_curve(rng)
        values = curve.draw(rng)
        spikes += bool(find_spikes(curve.steps, values))
        rises += find_rise(curve.steps, values) is not None
    return spikes, rises


def test_healthy_curves_have_none() -> None:
    assert _healthy(0, 80) == (0, 0)


@pytest.mark.slow
def test_healthy_curves_have_none_in_995_of_1000() -> None:
    runs = 2000 if LONG else 200
    spikes, rises = _healthy(1, runs)
    assert max(spikes, rises) <= runs // 200


def test_heavy_tails_are_no_spikes() -> None:
    rng = np.random.default_rng(2)
    found = 0
    for _ in range(60):
        curve = training_curve(rng, 2000)
        found += bool(find_spikes(curve.steps, curve.truth + curve.sd * 0.77 * rng.standard_t(5, 2000)))
    assert found <= 1


def test_a_running_average_that_wanders_is_no_spike() -> None:
    rng = np.random.default_rng(3)
    found = 0
    for _ in range(150):
        smooth = np.convolve(rng.normal(0, 0.05, 400), 0.9 ** np.arange(60) * 0.1, mode="valid") + 3
        steps = np.arange(len(smooth))
        found += bool(find_spikes(steps, smooth, correlation=0.9))
        found += find_rise(steps, smooth, correlation=0.9) is not None
    assert found <= 1


def _spiked(rng: np.random.Generator) -> tuple[Curve, np.ndarray, int, int]:
    """A curve past its steep start with an excursion of 8 to 20 standard deviations over 5 points or more."""
    curve = training_curve(rng, int(log_uniform(rng, 300, 10_000)))
    values, n = curve.draw(rng), len(curve.steps)
    length = int(rng.integers(5, min(60, n // 10)))
    first = int(rng.integers(int(0.5 * n), n - length - 12))
    values[first : first + length] += rng.uniform(8, 20) * curve.sd[first]
    return curve, values, first, length


def test_planted_spikes_are_found() -> None:
    rng = np.random.default_rng(4)
    found = 0
    for _ in range(100):
        curve, values, first, length = _spiked(rng)
        spikes = find_spikes(curve.steps, values)
        assert len(spikes) <= 1
        found += any(
            curve.steps[first] <= spike.first <= curve.steps[first + length - 1]
            and spike.recovered_at is not None
            for spike in spikes
        )
    assert found >= 95


def test_a_spike_says_where_and_how_high() -> None:
    rng = np.random.default_rng(5)
    values = rng.normal(3.0, 0.05, 1000)
    values[600:620] += np.linspace(2.0, 0.5, 20)
    spike = find_spikes(np.arange(0, 10_000, 10), values)[0]
    assert (spike.first, spike.recovered_at) == (6000, 6200)
    assert 6000 <= spike.peak <= 6030
    assert spike.height == pytest.approx(2.0, abs=0.2)
    assert spike.z == pytest.approx(40, rel=0.25)


def test_several_spikes() -> None:
    rng = np.random.default_rng(6)
    values = rng.normal(3.0, 0.05, 3000)
    for first in (1000, 1500, 2400):
        values[first : first + 8] += 1.0
    assert [spike.first for spike in find_spikes(np.arange(3000), values)] == [1000, 1500, 2400]


def test_a_spike_at_the_end_of_the_log_is_open() -> None:
    rng = np.random.default_rng(7)
    values = rng.normal(3.0, 0.05, 500)
    values[492:] += 2.0
    (spike,) = find_spikes(np.arange(500), values)
    assert (spike.first, spike.recovered_at) == (492, None)
    assert find_rise(np.arange(500), values) is None


def test_one_bad_batch_is_no_spike_unless_it_is_absurd() -> None:
    rng = np.random.default_rng(8)
    values = rng.normal(3.0, 0.05, 500)
    values[300] += 0.5
    assert find_spikes(np.arange(500), values) == []
    values[300] += 2.0
    assert len(find_spikes(np.arange(500), values)) == 1


def test_planted_divergences_are_rises_and_no_spikes() -> None:
    rng = np.random.default_rng(9)
    rises = spikes = 0
    for _ in range(100):
        curve = training_curve(rng, int(log_uniform(rng, 100, 10_000)))
        n = len(curve.steps)
        first = int(rng.integers(int(0.3 * n), int(0.85 * n)))
        ramp = int(rng.integers(1, max(2, n // 10)))
        height = rng.uniform(8, 40) * curve.sd[first]
        after = np.arange(n) - first
        level = curve.truth[first] + height * np.minimum(after / ramp, 1)
        values = np.where(after > 0, level, curve.truth) + curve.sd * rng.normal(size=n)
        rises += find_rise(curve.steps, values) is not None
        spikes += any(spike.recovered_at is not None for spike in find_spikes(curve.steps, values))
    assert rises >= 95
    assert spikes <= 2


def test_a_rise_says_from_where_to_where() -> None:
    # as in a public blow-up: down to 3.8 by step 2,500, then up to 7.4 and there for 1,200 steps
    rng = np.random.default_rng(10)
    steps = np.arange(0, 4000, 20)
    truth = np.where(
        steps < 2600, 3.8 + 7 * (1 + steps / 50) ** -1.2, np.minimum(3.9 + (steps - 2600) / 30, 7.4)
    )
    rise = find_rise(steps, truth + rng.normal(0, 0.04, len(steps)))
    assert rise is not None
    assert rise.level == pytest.approx(7.4, abs=0.05)
    assert 2300 <= rise.lowest_step <= rise.began <= 2720
    assert rise.height == pytest.approx(3.5, abs=0.15)


@pytest.mark.parametrize("seed", range(5))
def test_a_slow_rise_began_where_it_left_its_level(seed: int) -> None:
    # by 0.1 a line, from step 3,000 of 6,000 on
    rng = np.random.default_rng(seed)
    steps = np.arange(0, 6001, 10)
    truth = np.where(steps < 3000, 3.65, np.minimum(3.65 + (steps - 3000) / 100, 6.8))
    rise = find_rise(steps, truth + rng.normal(0, 0.05, len(steps)))
    assert rise is not None
    assert 2980 <= rise.began <= 3030


def test_a_rise_that_came_back_is_none() -> None:
    rng = np.random.default_rng(11)
    steps = np.arange(2000)
    bump = 1.0 * np.exp(-(((steps - 1000) / 150) ** 2))
    assert find_rise(steps, 3 + bump - steps * 1e-4 + rng.normal(0, 0.05, 2000)) is None


def test_short_series() -> None:
    assert find_spikes(np.arange(10), np.arange(10.0)) == []
    assert find_rise(np.arange(10), np.arange(10.0)) is None
    assert find_spikes(np.arange(60), np.full(60, np.nan)) == []


def test_a_million_points_take_a_moment() -> None:
    rng = np.random.default_rng(12)
    values = 3 + 7 * (1 + np.arange(1_000_000) / 5000) ** -0.5 + rng.normal(0, 0.1, 1_000_000)
    values[700_000:700_400] += 2
    spikes = find_spikes(np.arange(1_000_000), values)
    assert len(spikes) == 1
    assert spikes[0].first == pytest.approx(700_000, abs=250)


@pytest.mark.parametrize("away", [30, 9_998, 10_000, 25_000])
def test_a_spike_that_lasts_ends_where_it_came_back(away: int) -> None:
    values = 3 + 0.01 * np.random.default_rng(5).standard_normal(40_000)
    values[10_000 : 10_000 + away] += 5
    (spike,) = find_spikes(np.arange(len(values)), values)
    assert (spike.first, spike.recovered_at) == (10_000, 10_000 + away)

"""The noise of a series around a trend that is not known."""

import numpy as np
import pytest

from gptwright.arithmetic.trend import noise_of
from gptwright.arithmetic.trend.noise import median_of, neighbour_differences
from tests.arithmetic.trend.curves import training_curve


def test_white_noise_on_a_steep_curve() -> None:
    rng = np.random.default_rng(0)
    ratios = []
    for _ in range(200):
        curve = training_curve(rng, 400, late_noise=False)
        noise = noise_of(curve.draw(rng), curve.steps)
        assert noise is not None
        ratios.append(noise.sd / curve.sd[0])
    assert np.median(ratios) == pytest.approx(1.0, abs=0.05)
    assert np.std(ratios) < 0.15


def test_spikes_do_not_move_it() -> None:
    rng = np.random.default_rng(1)
    values = rng.normal(3.0, 0.05, 1000)
    values[rng.choice(1000, 20, replace=False)] += 4
    noise = noise_of(values)
    assert noise is not None
    assert noise.sd == pytest.approx(0.05, rel=0.2)


def test_points_at_unequal_distances() -> None:
    rng = np.random.default_rng(2)
    steps = np.cumsum(rng.integers(1, 50, 2000))
    noise = noise_of(5 - 0.001 * steps + rng.normal(0, 0.1, 2000), steps)
    assert noise is not None
    assert noise.sd == pytest.approx(0.1, rel=0.08)


@pytest.mark.parametrize("points", [60, 200, 2000])
def test_white_noise_is_not_called_alike(points: int) -> None:
    rng = np.random.default_rng(3)
    found = [noise_of(rng.normal(size=points)) for _ in range(200)]
    alike = [noise for noise in found if noise is not None and noise.correlation > 0]
    assert len(alike) <= 5
    assert all(n.effective == points for n in found if n is not None and n.correlation == 0)


def test_a_running_average_is_worth_fewer_points() -> None:
    rng = np.random.default_rng(4)
    shocks = rng.normal(size=20_200)
    smooth = np.zeros(20_200)
    for index in range(1, len(smooth)):
        smooth[index] = 0.8 * smooth[index - 1] + 0.6 * shocks[index]
    noise = noise_of(smooth[200:])
    assert noise is not None
    assert noise.correlation == pytest.approx(0.8, abs=0.05)
    assert noise.sd == pytest.approx(1.0, rel=0.35)
    assert noise.effective == pytest.approx(20_000 / 9, rel=0.4)


def test_bad_values_are_left_out() -> None:
    rng = np.random.default_rng(5)
    values = rng.normal(3.0, 0.05, 200)
    values[[10, 50]] = np.nan, np.inf
    noise = noise_of(values)
    assert noise is not None
    assert noise.sd == pytest.approx(0.05, rel=0.25)


def test_few_points_say_nothing() -> None:
    assert noise_of(np.arange(7.0)) is None
    assert noise_of(np.full(20, np.nan)) is None
    assert noise_of(np.array([])) is None


def test_a_line_has_no_noise() -> None:
    noise = noise_of(np.linspace(3, 2, 50))
    assert noise is not None
    assert noise.sd == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("points", [9, 10, 501, 1000])
def test_equal_distances_are_the_same_by_one_number(points: int) -> None:
    rng = np.random.default_rng(points)
    y, at = rng.standard_normal(points), np.arange(3, 7 * points + 3, 7, dtype=np.float64)
    bent = at.copy()
    bent[-1] += 1e-9
    np.testing.assert_array_equal(
        neighbour_differences(y, at, 1)[:-1], neighbour_differences(y, bent, 1)[:-1]
    )
    assert median_of(np.abs(y)) == np.median(np.abs(y))

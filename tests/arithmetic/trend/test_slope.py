"""Slopes and offsets with honest intervals."""

import math
import re

import numpy as np
import pytest

from gptwright.arithmetic.trend import offset_between, slope
from tests.arithmetic.trend.curves import evaluation_curve
from tests.conftest import SHARED

CASES = SHARED / "cases"


def test_the_formula_of_known_noise() -> None:
    # 124M, a window of 1,000 steps, batch noise 0.043: 0.0047 nats per 1,000 steps
    found = slope(np.arange(1000), np.full(1000, 3.3), noise=0.043)
    assert found is not None
    assert found.standard_error * 1000 == pytest.approx(0.0047, abs=0.0001)
    assert found.standard_error == pytest.approx(0.043 * math.sqrt(12) / 1000**1.5, rel=0.001)


@pytest.mark.parametrize("noise", [None, 0.1])
@pytest.mark.parametrize("points", [5, 12, 200])
def test_the_interval_holds_the_truth(noise: float | None, points: int) -> None:
    rng = np.random.default_rng(points)
    steps = np.sort(rng.choice(10_000, points, replace=False))
    inside = 0
    for _ in range(1000):
        found = slope(steps, 3 - 2e-5 * steps + rng.normal(0, 0.1, points), noise)
        assert found is not None
        inside += found.low <= -2e-5 <= found.high
    assert inside / 1000 == pytest.approx(0.95, abs=0.02)


def test_two_points_have_no_slope() -> None:
    assert slope(np.array([1, 2]), np.array([3.0, 2.0])) is None


@pytest.mark.parametrize("truth", [0.0, 0.09])
def test_an_offset_is_found_and_its_error_is_honest(truth: float) -> None:
    rng = np.random.default_rng(7)
    z = []
    for _ in range(200):
        curve = evaluation_curve(rng, 40, 0.004)
        steps = np.arange(curve.steps[0], curve.steps[-1], (curve.steps[-1] - curve.steps[0]) / 150)
        lines = np.interp(steps, curve.steps, curve.truth) + truth + rng.normal(0, 0.1, len(steps))
        found = offset_between(steps, lines, curve.steps, curve.draw(rng))
        assert found is not None
        z.append((found.mean - truth) / found.standard_error)
    assert abs(np.mean(z)) < 0.35
    assert np.std(z) == pytest.approx(1.0, abs=0.2)


def test_the_steep_start_makes_no_offset() -> None:
    at = np.arange(0, 20_001, 500)
    smooth = 3 + 8 * np.exp(-at / 700)
    steps = np.arange(0, 20_001, 100)
    found = offset_between(steps, 3 + 8 * np.exp(-steps / 700), at, smooth)
    assert found is not None
    assert abs(found.mean) < 0.002


def test_too_little_in_common() -> None:
    few = np.array([1.0, 2.0, 3.0])
    many = np.arange(10.0)
    assert offset_between(few, few, many, many) is None
    assert offset_between(many + 100, many, many, many) is None


def _losses(folder: str) -> tuple[np.ndarray, np.ndarray]:
    text = (CASES / folder / "log.txt").read_text(errors="replace")
    lines = re.findall(r"^iter (\d+): loss ([\d.]+)", text, re.MULTILINE)
    evals = re.findall(r"step (\d+): train loss ([\d.]+)", text)
    return np.array(lines, dtype=float), np.array(evals, dtype=float)


@pytest.mark.skipif(not CASES.is_dir(), reason="the cases are not here")
@pytest.mark.parametrize(
    ("folder", "mean", "significant"),
    [("web-4070-narrow", 0.0925, True), ("compare-two-corpora/b", -0.006, False)],
)
def test_dropout_shows_in_public_logs(folder: str, mean: float, significant: bool) -> None:
    lines, evals = _losses(folder)
    found = offset_between(lines[:, 0], lines[:, 1], evals[:, 0], evals[:, 1])
    assert found is not None
    assert found.mean == pytest.approx(mean, abs=0.004)
    assert (found.mean > 5 * found.standard_error) == significant

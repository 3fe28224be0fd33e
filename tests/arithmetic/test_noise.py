"""The standard error of an evaluation."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gptwright.arithmetic.noise import MeanLoss, mean_loss


def test_known_values() -> None:
    # deviations −1, 0, 0, 1: a variance of 2/3 over 4 windows
    result = mean_loss(np.array([1.0, 2.0, 2.0, 3.0]))
    assert (result.mean, result.windows) == (2.0, 4)
    assert result.standard_error == pytest.approx(math.sqrt(2 / 3 / 4))


def test_one_window_has_no_standard_error() -> None:
    assert mean_loss(np.array([1.5], dtype=np.float32)) == MeanLoss(1.5, None, 1)


@given(losses=st.lists(st.floats(0, 20, width=32), min_size=2, max_size=50))
def test_the_formula(losses: list[float]) -> None:
    result = mean_loss(np.array(losses))
    mean = math.fsum(losses) / len(losses)
    spread = math.fsum((loss - mean) ** 2 for loss in losses)
    assert result.windows == len(losses)
    assert result.mean == pytest.approx(mean)
    assert result.standard_error == pytest.approx(
        math.sqrt(spread / (len(losses) - 1) / len(losses)), abs=1e-12
    )


def test_the_standard_error_is_how_far_means_scatter() -> None:
    rng = np.random.default_rng(0)
    results = [mean_loss(rng.normal(3.0, 0.4, size=50)) for _ in range(2000)]
    scatter = np.std([result.mean for result in results])
    claimed = np.mean([result.standard_error for result in results if result.standard_error is not None])
    assert scatter == pytest.approx(0.4 / math.sqrt(50), rel=0.06)
    assert claimed == pytest.approx(scatter, rel=0.06)


def test_sums_are_kept_in_float64() -> None:
    losses = np.full(100_000, 10.1, dtype=np.float32)
    assert mean_loss(losses).mean == pytest.approx(float(np.float32(10.1)), rel=1e-12)

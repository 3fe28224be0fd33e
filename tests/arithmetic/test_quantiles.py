"""Quantiles against scipy's, and against tables."""

import subprocess
import sys

import pytest
from scipy.special import ndtri, stdtrit

from gptwright.arithmetic.quantiles import normal_quantile, student_quantile

PROBABILITIES = (0.55, 0.6, 0.9, 0.95, 0.975, 0.99, 0.9995, 0.999999)


@pytest.mark.parametrize("degrees", [0.5, 1, 2, 2.5, 3, 7.25, 30, 199.5, 999, 1000, 12_345.6, 1e6])
@pytest.mark.parametrize("probability", PROBABILITIES)
def test_student_is_scipys(degrees: float, probability: float) -> None:
    expected = float(stdtrit(degrees, probability))
    assert student_quantile(degrees, probability) == pytest.approx(expected, rel=2e-8, abs=1e-9)
    assert student_quantile(degrees, 1 - probability) == pytest.approx(
        -student_quantile(degrees, probability), rel=1e-9
    )


@pytest.mark.parametrize("probability", [1e-9, 0.025, 0.5, *PROBABILITIES])
def test_normal_is_scipys(probability: float) -> None:
    assert normal_quantile(probability) == pytest.approx(float(ndtri(probability)), rel=1e-9, abs=1e-12)


def test_the_table_that_everybody_knows() -> None:
    assert normal_quantile(0.975) == pytest.approx(1.959964, abs=1e-6)
    assert student_quantile(4, 0.975) == pytest.approx(2.776445, abs=1e-6)
    assert student_quantile(1, 0.75) == pytest.approx(1.0, abs=1e-12)


def test_a_diagnosis_loads_no_scipy() -> None:
    code = (
        "import sys; from gptwright.arithmetic.trend import slope;"
        "slope([0, 1, 2, 4], [3.0, 2.5, 2.2, 1.9]); print('scipy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"

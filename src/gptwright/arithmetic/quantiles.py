"""Quantiles of the normal and of Student's distribution, for intervals and tests.

scipy has both, but its first special function costs every reading of a log half a second of imports (array
libraries, a Fortran parser). The incomplete beta function is taken from its continued fraction (Abramowitz
and Stegun 26.5.8, evaluated by Lentz's method); from 1,000 degrees on the expansion around the normal
quantile (26.7.5) is better than 1e-9. The tests hold both against scipy.
"""

import math
from statistics import NormalDist

NORMAL = NormalDist()
# Degrees of freedom from which the expansion takes over.
MANY = 1000.0
# The fraction needs O(sqrt(degrees)) terms.
MOST_TERMS = 300
PRECISION, SMALLEST = 1e-15, 1e-300


def normal_quantile(probability: float) -> float:
    """The value that a standard normal variable stays under with a probability in (0, 1)."""
    return NORMAL.inv_cdf(probability)


def student_quantile(degrees: float, probability: float) -> float:
    """The value that Student's t stays under.

    Args:
        degrees: of freedom, over 0; need not be whole.
        probability: in (0, 1).
    """
    if probability < 0.5:
        return -student_quantile(degrees, 1 - probability)
    if degrees >= MANY:
        return _by_expansion(degrees, normal_quantile(probability))
    # P(|T| > t) is the incomplete beta function at degrees / (degrees + t²), which rises with its argument.
    outside = 2 * (1 - probability)
    low, high = 0.0, 1.0
    while high - low > PRECISION * high:
        middle = (low + high) / 2
        if _incomplete_beta(middle, degrees / 2, 0.5) < outside:
            low = middle
        else:
            high = middle
    return math.sqrt(degrees * (1 - high) / high)


def _by_expansion(n: float, z: float) -> float:
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / n + second / n**2 + third / n**3


def _incomplete_beta(x: float, a: float, b: float) -> float:
    """I_x(a, b), the regularized incomplete beta function."""
    if not 0 < x < 1:
        return float(x >= 1)
    # The fraction is quick left of the mean; right of it, what is missing to 1 is.
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(1 - x, b, a)
    logarithm = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    return math.exp(logarithm) / (a * _fraction(x, a, b))


def _fraction(x: float, a: float, b: float) -> float:
    """1 + d₁/(1 + d₂/(1 + …)), whose inverse is the series part of I_x(a, b)."""
    value = c = 1.0
    d = 0.0
    for term in range(1, MOST_TERMS):
        m = term // 2
        if term % 2:
            coefficient = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            coefficient = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        d = 1 / (1 + coefficient * d or SMALLEST)
        c = 1 + coefficient / c or SMALLEST
        value *= c * d
        if abs(c * d - 1) < PRECISION:
            break
    return value

"""Where a loss curve is heading: a power law, and what the learning rate's decay will still take off.

Loss = E + A·tokens^-b − C·(1 − learning rate / peak). For a given exponent b the rest is linear, so the fit
is exact on a grid of exponents, each weighted by how well it explains the curve; a forecast is the mixture,
so that exponents which the data cannot tell apart widen it. C is given as a prior, because before the decay
begins a curve does not show it: 0.08 to 0.15 nats on public 124M runs. Left out, every fit on such a curve is
0.05 to 0.18 nats too pessimistic (docs/scaling.md has the table).

E and A are not capacity and data: they describe one curve and carry over to nothing else.

Cost: 40 weighted fits of 3 numbers on at most 40 points, together about a millisecond.
"""

import math
from dataclasses import dataclass

import numpy as np

from gptwright.arithmetic.trend.noise import Floats, Numbers, noise_of

# Curves bend differently while the learning rate warms up and the first regularities are learned: the part
# before a fifth of what was seen is left out. A tenth is worse by a factor of 2 at 35 % of a run.
START_SHARE = 0.2
LEAST_POINTS = 8
# The exponent of E + A·tokens^-b over one run; published curves give 0.2 to 0.8.
EXPONENTS: Floats = np.exp(np.linspace(math.log(0.05), math.log(1.5), 40))
# Points are averaged in this many bins, equal in log tokens, so that a dense end does not outvote the shape.
BINS = 40
# What the learning rate's decay takes off; see the module's text. The spread is wider than the 0.08 to 0.15
# that was seen, because sizes other than 124M were not.
ANNEAL, ANNEAL_SPREAD = 0.115, 0.05
# Neither is the effect exactly proportional to the learning rate: halfway down a linear decay more than half
# has been taken off, 0.015 nats more on public curves, which is a quarter of what then remains.
ANNEAL_SHAPE_SPREAD = 0.25
# The asymptote as a share of the last loss; 0.75 to 0.95 on public curves. It matters only where the curve
# does not say.
ASYMPTOTE, ASYMPTOTE_SPREAD = 0.8, 0.2
# A power law's misfit on public curves: single bins, the end point, and for each factor e ahead.
BIN_MISFIT, END_MISFIT, MISFIT_AHEAD = 0.004, 0.008, 0.03
# Before this share of a run a forecast of its end is worth nothing: 0.07 nats off and more.
LEAST_SHARE = 0.3
# So many standard deviations on either side are the forecast's interval of 90 %.
QUANTILE = 1.6449
# What an unknown schedule may still take off; and how far a curve at the end of its decay, which falls faster
# than a power law and then stops, stays above it.
MOST_ANNEAL, STOPS_SHORT = 0.15, 0.02


@dataclass(frozen=True, slots=True, eq=False)
class CurveFit:
    """A fitted curve.

    Attributes:
        last_tokens: where the fitted part ends.
        points: points that were fitted.
        noise: standard deviation of one point, nats.
        lr_known: whether the learning rate was given.
        last_lr: the learning rate at the end as a share of its peak; 1 if it is not known.
        weights: of the exponents `[40]`.
        coefficients: asymptote, amplitude at `last_tokens`, and what the decay takes off `[40, 3]`.
        covariances: theirs `[40, 3, 3]`.
    """

    last_tokens: float
    points: int
    noise: float
    lr_known: bool
    last_lr: float
    weights: Floats
    coefficients: Floats
    covariances: Floats

    @property
    def exponent(self) -> float:
        """The mean exponent; curves rarely pin it down."""
        return float(self.weights @ EXPONENTS)


@dataclass(frozen=True, slots=True)
class Forecast:
    """A loss ahead, in nats: the likely value and a 90 % interval."""

    low: float
    likely: float
    high: float


def fit_curve(
    tokens: Numbers,
    loss: Numbers,
    *,
    lr_fraction: Numbers | None = None,
    noise: float | None = None,
) -> CurveFit | None:
    """Fits the later part of a loss curve; None for fewer than 8 points in it.

    Args:
        tokens: tokens seen, or steps.
        loss: nats a token; spikes should be cut out before.
        lr_fraction: the learning rate at each point as a share of its peak.
        noise: standard deviation of one point, if it is known.
    """
    y, t = np.asarray(loss, dtype=np.float64), np.asarray(tokens, dtype=np.float64)
    lr = np.ones_like(y) if lr_fraction is None else np.asarray(lr_fraction, dtype=np.float64)
    good = np.isfinite(y) & np.isfinite(t) & np.isfinite(lr) & (t > 0)
    if not good.any():
        return None
    good &= t >= START_SHARE * t[good].max()
    order = np.argsort(t[good], kind="stable")
    y, t, lr = y[good][order], t[good][order], lr[good][order]
    if noise is None:
        measured = noise_of(y, t)
        noise = None if measured is None else measured.sd
    if len(y) < LEAST_POINTS or noise is None or len(np.unique(t)) < LEAST_POINTS:
        return None
    weights, coefficients, covariances = _posterior(*_binned(t, y, lr), noise, float(t[-1]))
    return CurveFit(
        last_tokens=float(t[-1]),
        points=len(y),
        noise=noise,
        lr_known=lr_fraction is not None,
        last_lr=float(lr[-1]),
        weights=weights,
        coefficients=coefficients,
        covariances=covariances,
    )


def forecast(fit: CurveFit, tokens: float, *, lr_fraction: float | None = 0.0) -> Forecast | None:
    """The loss after `tokens`, with a 90 % interval; None if less than 30 % of the way has been seen.

    Args:
        fit: a fitted curve.
        tokens: how far, in the unit that was fitted.
        lr_fraction: the learning rate there as a share of its peak. None, or a fit without learning rates:
            the interval allows for a decay, and for one that is ending.
    """
    if fit.last_tokens < LEAST_SHARE * tokens:
        return None
    known = fit.lr_known and lr_fraction is not None
    at_lr = lr_fraction if known and lr_fraction is not None else fit.last_lr
    row = np.stack(
        [
            np.ones_like(EXPONENTS),
            (tokens / fit.last_tokens) ** -EXPONENTS,
            np.full_like(EXPONENTS, -(1 - at_lr)),
        ],
        axis=1,
    )
    means = (row * fit.coefficients).sum(axis=1)
    variances = np.einsum("ki,kij,kj->k", row, fit.covariances, row)
    likely = float(fit.weights @ means)
    ahead = abs(math.log(tokens / fit.last_tokens))
    variance = float(fit.weights @ (variances + (means - likely) ** 2))
    variance += END_MISFIT**2 + (MISFIT_AHEAD * ahead) ** 2
    variance += (ANNEAL_SHAPE_SPREAD * ANNEAL * (fit.last_lr - at_lr)) ** 2
    half = QUANTILE * math.sqrt(variance)
    if not known:
        return Forecast(likely - half - MOST_ANNEAL, likely, likely + half + STOPS_SHORT)
    return Forecast(likely - half, likely, likely + half)


def _binned(t: Floats, y: Floats, lr: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """Means in bins of log tokens: tokens, loss, learning rate, and the number of points."""
    position = np.log(t / t[0]) / max(math.log(t[-1] / t[0]), 1e-12)
    bin_of = np.minimum((position * BINS).astype(np.int64), BINS - 1)
    count = np.bincount(bin_of, minlength=BINS).astype(np.float64)
    used = count > 0
    sums = [np.bincount(bin_of, weights=w, minlength=BINS)[used] for w in (np.log(t), y, lr)]
    log_t, mean_y, mean_lr = (total / count[used] for total in sums)
    return np.exp(log_t), mean_y, mean_lr, count[used]


def _posterior(  # noqa: PLR0917 - the four arrays are one table
    t: Floats, y: Floats, lr: Floats, count: Floats, noise: float, last: float
) -> tuple[Floats, Floats, Floats]:
    """Weights, coefficients and covariances over the grid of exponents: linear least squares with priors."""
    precision = 1 / (noise**2 / count + BIN_MISFIT**2)
    prior_mean = np.array([ASYMPTOTE * y[-1], 0.0, ANNEAL])
    spread = np.array([ASYMPTOTE_SPREAD * abs(y[-1]), np.inf, ANNEAL_SPREAD])
    prior = 1 / np.maximum(spread, 1e-12) ** 2
    power = (t / last)[None, :] ** -EXPONENTS[:, None]
    design = np.stack([np.ones_like(power), power, np.broadcast_to(lr - 1, power.shape)], axis=2)
    weighted = design * precision[None, :, None]
    covariances = np.linalg.inv(np.einsum("kni,knj->kij", weighted, design) + np.diag(prior))
    coefficients = np.einsum("kij,kj->ki", covariances, weighted.swapaxes(1, 2) @ y + prior * prior_mean)
    residuals = y[None, :] - np.einsum("kni,ki->kn", design, coefficients)
    misfit = residuals**2 @ precision + (coefficients - prior_mean) ** 2 @ prior
    # Each exponent's weight is its marginal likelihood: the best fit's, times the volume around it.
    scores = -misfit / 2 + np.linalg.slogdet(covariances)[1] / 2
    weights = np.exp(scores - scores.max())
    return weights / weights.sum(), coefficients, covariances

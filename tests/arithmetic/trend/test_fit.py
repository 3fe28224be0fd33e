"""Forecasts whose intervals hold the truth."""

import csv
from collections import defaultdict

import numpy as np
import pytest

from gptwright.arithmetic.trend import fit_curve, forecast
from tests.arithmetic.trend.curves import Floats, log_uniform
from tests.conftest import SHARED

REFERENCE = SHARED / "research" / "ref_curves.csv"
# Where the learning rate's linear decay begins; None for a cosine over the whole run.
DECAY_FROM = {
    "llm.c-124M-fineweb10B": None,
    "llm.c-350M-fineweb31B": None,
    "modded-AdamW-124M-5B": 0.785,
    "modded-Muon-124M-3.25B": 0.71,
    "modded-ModernArch-124M-2.67B": 0.72,
    "modded-ModernArch-Adam-2.67B": 0.72,
    "modded-ModernArch-SOAP-2.67B": 0.72,
    "modded-UntieEmbed-2.4B": 0.715,
    "modded-UNetDoubleLr-1.57B": 0.70,
}


def _lr(share: Floats, decay_from: float | None) -> Floats:
    if decay_from is None:
        return (1 + np.cos(np.pi * share)) / 2
    return np.minimum((1 - share) / (1 - decay_from), 1.0)


@pytest.mark.parametrize("known", [True, False])
def test_intervals_hold_the_end_of_synthetic_runs(known: bool) -> None:
    rng = np.random.default_rng(0)
    inside = 0
    for _ in range(300):
        points = int(rng.uniform(40, 400))
        share = np.arange(1, points + 1) / points
        lr = _lr(share, None) if rng.random() < 0.5 else _lr(share, 0.75)
        asymptote, exponent = rng.uniform(1, 3.2), log_uniform(rng, 0.15, 0.9)
        truth = asymptote * (1 + rng.uniform(0.02, 0.15) * share**-exponent)
        truth -= rng.uniform(0.08, 0.15) * (1 - lr)
        sd = log_uniform(rng, 0.001, 0.02)
        seen = share <= rng.uniform(0.35, 0.95)
        values = truth[seen] + sd * rng.normal(size=int(seen.sum()))
        fit = fit_curve(share[seen] * 1e9, values, lr_fraction=lr[seen] if known else None)
        assert fit is not None
        ahead = forecast(fit, 1e9, lr_fraction=float(lr[-1]) if known else None)
        assert ahead is not None
        inside += ahead.low <= truth[-1] <= ahead.high
    assert inside >= 0.9 * 300


def test_a_plain_power_law_is_recovered() -> None:
    tokens = np.linspace(1e7, 5e8, 300)
    rng = np.random.default_rng(1)
    loss = 3.0 + 0.4 * (tokens / 1e9) ** -0.4 + rng.normal(0, 0.002, 300)
    fit = fit_curve(tokens, loss, lr_fraction=np.ones(300))
    assert fit is not None
    ahead = forecast(fit, 1e9, lr_fraction=1.0)
    assert ahead is not None
    assert ahead.likely == pytest.approx(3.4, abs=0.01)
    assert 0.2 < fit.exponent < 0.8


def test_a_decay_to_come_lowers_the_forecast() -> None:
    tokens = np.linspace(1e7, 7e8, 300)
    loss = 3.0 + 0.4 * (tokens / 1e9) ** -0.4
    fit = fit_curve(tokens, loss, lr_fraction=np.ones(300))
    assert fit is not None
    stays, decays = (forecast(fit, 1e9, lr_fraction=lr) for lr in (1.0, 0.0))
    assert stays is not None
    assert decays is not None
    assert stays.likely - decays.likely == pytest.approx(0.115, abs=0.02)
    assert decays.high - decays.low > stays.high - stays.low


def test_an_unknown_schedule_is_admitted() -> None:
    tokens = np.linspace(1e7, 7e8, 300)
    fit = fit_curve(tokens, 3.0 + 0.4 * (tokens / 1e9) ** -0.4)
    assert fit is not None
    ahead = forecast(fit, 1e9, lr_fraction=0.0)
    assert ahead is not None
    assert not fit.lr_known
    assert ahead.likely - ahead.low > 0.15
    assert ahead.high - ahead.likely < 0.08


def test_nothing_is_said_before_thirty_percent() -> None:
    tokens = np.linspace(1e7, 2.9e8, 100)
    fit = fit_curve(tokens, 3.0 + (tokens / 1e7) ** -0.5)
    assert fit is not None
    assert forecast(fit, 1e9) is None
    assert forecast(fit, 9e8) is not None


def test_too_little_to_fit() -> None:
    assert fit_curve(np.arange(1, 8), np.linspace(4, 3, 7)) is None
    assert fit_curve(np.arange(0, 100), np.full(100, np.nan)) is None


def test_bad_values_and_dense_logs() -> None:
    rng = np.random.default_rng(2)
    tokens = np.linspace(0, 5e8, 20_000)
    loss = 3.0 + 0.4 * (np.maximum(tokens, 1e5) / 1e9) ** -0.3 + rng.normal(0, 0.1, 20_000)
    loss[::97] = np.nan
    fit = fit_curve(tokens, loss, lr_fraction=np.ones(20_000))
    assert fit is not None
    assert fit.noise == pytest.approx(0.1, rel=0.1)
    ahead = forecast(fit, 1e9, lr_fraction=1.0)
    assert ahead is not None
    assert ahead.low < 3.4 < ahead.high
    assert ahead.high - ahead.low < 0.2


@pytest.mark.skipif(not REFERENCE.is_file(), reason="the reference curves are not here")
@pytest.mark.parametrize("known", [True, False])
def test_the_ends_of_public_runs(known: bool) -> None:
    runs: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    with REFERENCE.open() as file:
        for row in csv.DictReader(file):
            if float(row["tokens"]) > 0:
                runs[row["run"]].append((float(row["tokens"]), float(row["val_loss"])))
    inside = total = 0
    errors = []
    for run, points in runs.items():
        tokens, loss = np.array(points).T
        lr = _lr(tokens / tokens[-1], DECAY_FROM[run])
        for share in (0.5, 0.7, 0.85):
            seen = tokens <= share * tokens[-1]
            fit = fit_curve(tokens[seen], loss[seen], lr_fraction=lr[seen] if known else None)
            assert fit is not None
            ahead = forecast(fit, float(tokens[-1]), lr_fraction=0.0)
            assert ahead is not None
            inside += ahead.low <= loss[-1] <= ahead.high
            errors.append(ahead.likely - loss[-1])
            total += 1
    assert inside >= 0.9 * total
    if known:
        assert float(np.sqrt(np.mean(np.square(errors)))) < 0.025

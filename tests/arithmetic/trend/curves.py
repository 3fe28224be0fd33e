"""Synthetic loss curves with known truth, for the tests of this folder."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Curve:
    """A curve: its steps, its truth without noise, and the standard deviation of each point."""

    steps: Floats
    truth: Floats
    sd: Floats

    def draw(self, rng: np.random.Generator) -> Floats:
        return self.truth + self.sd * rng.normal(size=len(self.truth))


def log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def training_curve(rng: np.random.Generator, points: int | None = None, *, late_noise: bool = True) -> Curve:
    """A power law from ln(vocabulary) down, with white noise, constant or falling with 1 / sqrt(step)."""
    n = points or int(log_uniform(rng, 100, 20_000))
    index = np.arange(1, n + 1, dtype=np.float64)
    asymptote, exponent = rng.uniform(1, 3.3), rng.uniform(0.2, 0.8)
    start, scale = rng.choice([4.17, 10.82]), rng.uniform(0.001, 0.02) * n
    truth = asymptote + (start - asymptote) * (1 + index / scale) ** -exponent
    sd = log_uniform(rng, 0.003, 0.16)
    falling = rng.random() < 0.5
    noise = sd / np.sqrt(index / n) if falling and late_noise else np.full(n, sd)
    spacing = float(rng.choice([1, 10, 200]))
    return Curve((index * spacing).astype(np.float64), truth, noise)


def evaluation_curve(rng: np.random.Generator, points: int, sd: float) -> Curve:
    """Validation losses, often with a decay of the learning rate at the end."""
    curve = training_curve(rng, points, late_noise=False)
    share = np.arange(1, points + 1) / points
    drop = rng.uniform(0.05, 0.15)
    decay = rng.choice(3)
    taken = (0 * share, (1 - np.cos(np.pi * share)) / 2, np.clip((share - 0.75) / 0.25, 0, 1))[decay]
    return Curve(curve.steps * 250, curve.truth - drop * taken, np.full(points, sd))

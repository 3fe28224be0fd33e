"""What a fault is, and small tools for planting one."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from tests.simulator.handing import facts_of, settings_of
from tests.simulator.run import Run

Planter = Callable[[np.random.Generator, Run], Run]

STEP_LOSS = (
    "nanogpt",
    "llama2c",
    "build-nanogpt",
    "nanochat",
    "modded",
    "llmc",
    "litgpt",
    "hf",
    "hf-state",
    "torchtitan",
    "ours",
)
WEB_TEXT: Mapping[str, object] = MappingProxyType(
    {
        "vocabulary": 50304,
        "dataset": "fineweb",
        "parameters": (1e8, 4e8),
        "tokens_per_parameter": (8.0, 30.0),
        "finished": True,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that can be wrong with a run or with what is said about it.

    Attributes:
        plant: puts it into a healthy run.
        formats: the trainers whose folder can show it.
        wishes: what is asked of the healthy run before, fields of `draw.Wishes`.
        allowed: findings that may follow from it.
    """

    plant: Planter
    formats: tuple[str, ...]
    wishes: Mapping[str, object] = field(default_factory=dict)
    allowed: tuple[str, ...] = ()


def as_it_is(rng: np.random.Generator, run: Run) -> Run:
    """The wishes already make the run what it is to be."""
    return run


def retold(run: Run) -> Run:
    """The run handed over anew, after its truth was changed: a true config and true facts."""
    return run.with_handover(settings=settings_of(run.truth), facts=facts_of(run.truth), comments={})


def logged_step(rng: np.random.Generator, run: Run, low: float, high: float) -> int:
    """A step between two shares of the run that has a training line."""
    truth = run.truth
    return max(1, round(rng.uniform(low, high) * truth.last_step / truth.log_interval)) * truth.log_interval


def pick(rng: np.random.Generator, choices: tuple[str, ...]) -> str:
    """One of some texts."""
    return choices[int(rng.integers(len(choices)))]

"""Reads damaged logs and keeps account of what went wrong."""

import contextlib
import random
import time
import traceback
from collections.abc import Iterable
from dataclasses import dataclass, field

from gptwright.errors import RunError
from gptwright.record.readers import read_log
from tests.record.readers.literal import invented
from tests.record.readers.mutate import mutated
from tests.record.readers.samples import SAMPLES

# Longer than any usual one takes.
LONG_SECONDS = 0.5


@dataclass(slots=True)
class Result:
    """What a number of damaged logs came to.

    Attributes:
        logs: how many were read.
        refused: those in which no line was known.
        rows: rows that were read, each of whose numbers was looked for in its line.
        facts: facts and settings likewise.
        crashes: seed and error of each that was no RunError.
        inventions: seed and what was said that no line says.
        slowest_seconds: of processor time for one log; one that took long is read once more, as Python's
            collector goes through all that other tests left now and then.
    """

    logs: int = 0
    refused: int = 0
    rows: int = 0
    facts: int = 0
    crashes: list[str] = field(default_factory=list)
    inventions: list[str] = field(default_factory=list)
    slowest_seconds: float = 0.0


def fuzz(seeds: Iterable[int]) -> Result:
    """Reads one damaged log for each seed."""
    samples = [make() for make in SAMPLES]
    result = Result()
    for seed in seeds:
        rng = random.Random(seed)
        data = mutated(rng.choice(samples).lines, rng.choice(samples).lines, rng)
        _read(data, seed, result)
    return result


def _read(data: bytes, seed: int, result: Result) -> None:
    result.logs += 1
    begin = time.process_time()
    try:
        evidence = read_log(None, data=data)
    except RunError:
        result.refused += 1
        return
    except Exception:
        result.crashes.append(f"seed {seed}: {traceback.format_exc(limit=-3)}")
        return
    finally:
        seconds = time.process_time() - begin
        if seconds > LONG_SECONDS:
            seconds = min(seconds, _seconds_again(data))
        result.slowest_seconds = max(result.slowest_seconds, seconds)
    result.rows += len(evidence.train) + len(evidence.evals)
    result.facts += len(evidence.header) + len(evidence.settings)
    result.inventions += [f"seed {seed}: {wrong}" for wrong in invented(evidence, data)]


def _seconds_again(data: bytes) -> float:
    begin = time.process_time()
    with contextlib.suppress(Exception):
        read_log(None, data=data)
    return time.process_time() - begin

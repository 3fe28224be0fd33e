"""Lines that are read many at once say the same as line by line, and a million of them take seconds."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gptwright.record.evidence import TrainLines
from tests.record.readers.test_golden import TRAIN, read

DECIMALS = st.integers(0, 10**7).map(lambda n: f"{n / 1e4:.4f}")
LOSSES = st.one_of(DECIMALS, st.sampled_from(["nan", "inf", "-0.0001"]))
RATES = st.one_of(
    st.floats(1e-9, 1e3).map(lambda rate: f"{rate:.4e}"),
    st.sampled_from(["0.0000e+00", "1.0000e+02", "9.9999e-99"]),
)
TIMES = st.floats(0.01, 1e6).map(lambda ms: f"{ms:.2f}")
STEPS = st.integers(0, 10**9)


def rows_of(*columns: st.SearchStrategy[Any]) -> st.SearchStrategy[list[tuple[Any, ...]]]:
    """Rows, each with a step of its own: the same line twice would be one that two processes printed."""
    return st.lists(st.tuples(STEPS, *columns), min_size=1, max_size=30, unique_by=lambda row: row[0])


def both_ways(lines: list[str]) -> tuple[TrainLines, TrainLines]:
    """The table of lines that follow each other, and of the same with an empty line after each."""
    # Line feeds in between keep every run at one line, and a run is learned only after that.
    return read("\n".join(lines) + "\n").train, read("\n\n".join(lines) + "\n").train


def assert_same(lines: list[str]) -> None:
    together, apart = both_ways(lines)
    for column in TRAIN:
        if column != "line":
            np.testing.assert_array_equal(getattr(together, column), getattr(apart, column), err_msg=column)
    np.testing.assert_array_equal(2 * together.line - 1, apart.line)


@given(rows_of(LOSSES, TIMES, st.integers(-100, 300)))
def test_nanogpt(rows: list[tuple[int, str, str, int]]) -> None:
    assert_same([f"iter {step}: loss {loss}, time {ms}ms, mfu {mfu}.00%" for step, loss, ms, mfu in rows])


@given(rows_of(DECIMALS, RATES, TIMES))
def test_numbers_with_exponents(rows: list[tuple[int, str, str, str]]) -> None:
    assert_same(
        [
            f"step {step:5d} | loss: {loss}00 | lr {rate} | norm: 1.2000 | dt: {ms}ms | tok/sec: 1045.13"
            for step, loss, rate, ms in rows
        ]
    )


@given(rows_of(LOSSES, TIMES, st.integers(0, 10**9)))
def test_thousands_and_prefixes(rows: list[tuple[int, str, str, int]]) -> None:
    assert_same(
        [
            f"[2024-05-01 12:00:{step % 60:02d}] step {step:05d}/99999 (1.00%) | loss: {loss} | lrm: 1.00"
            f" | dt: {ms}ms | tok/sec: {tokens:,} | bf16_mfu: 43.32 | epoch: 1 pq: 0 rg: 1"
            " | total time: 5.55m | eta: 1.0m"
            for step, loss, ms, tokens in rows
        ]
    )


def test_numbers_beyond_a_double_are_left_to_the_patterns() -> None:
    lines = [f"iter {n}: loss 1.0000, time 100.00ms, mfu 20.00%" for n in (1, 2)]
    evidence = read(
        "\n".join([*lines, "iter 99999999999999999999: loss 1.0000, time 100.00ms, mfu 20.00%", *lines])
        + "\n"
    )
    assert list(evidence.train.step) == [1, 2, 1, 2]


@pytest.mark.slow
def test_a_million_lines_in_seconds_and_little_memory() -> None:
    root = Path(__file__).parents[3]
    command = [sys.executable, "-m", "benchmarks.readers", "--only", "nanoGPT"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=root)
    (row,) = json.loads(done.stdout)["rows"]
    assert row["lines"] == 1_000_000
    # Measured in 1.6 s on a machine of its own; a busy one is no failure.
    assert row["cpu_seconds"] < 10
    assert row["peak_megabytes"] < 300

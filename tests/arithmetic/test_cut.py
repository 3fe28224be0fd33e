"""A step's batch cut over processes and micro-batches: every sequence once, and the mean is the step's."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gptwright.arithmetic.cut import cut_step, passes_per_process, shares
from gptwright.errors import ConfigError


@st.composite
def steps(draw: st.DrawFn) -> tuple[int, int, int]:
    """Sequences, batch_size, processes."""
    sequences = draw(st.integers(1, 200))
    return sequences, draw(st.integers(1, 40)), draw(st.integers(1, sequences))


@given(steps())
def test_every_cut_has_the_mean_of_the_whole_step(step: tuple[int, int, int]) -> None:
    sequences, batch_size, size = step
    losses = np.random.default_rng(sequences).normal(size=sequences)
    seen, total = [], 0.0
    for rank in range(size):
        cut = cut_step(sequences, batch_size=batch_size, rank=rank, size=size)
        share = np.arange(sequences)[cut.share]
        counted = [micro for micro in cut.micro_batches if micro.divisor != float("inf")]
        seen += [row for micro in counted for row in share[micro.rows]]
        total += sum(losses[share][micro.rows].mean() / micro.divisor for micro in cut.micro_batches) / size
        assert all(1 <= len(share[micro.rows]) <= batch_size for micro in cut.micro_batches)
        assert len(cut.micro_batches) == passes_per_process(sequences, batch_size=batch_size, size=size)
        assert len(share) in shares(sequences, size)
    assert seen == list(range(sequences))
    assert total == pytest.approx(losses.mean(), abs=1e-12)


def test_processes_that_divide_the_accumulation_cut_as_nanogpt_does() -> None:
    """nanoGPT divides gradient_accumulation_steps by the number of processes."""
    cut = cut_step(12 * 40, batch_size=12, rank=3, size=8)
    assert cut.share == slice(180, 240)
    assert [micro.rows for micro in cut.micro_batches] == [slice(12 * n, 12 * n + 12) for n in range(5)]
    assert {micro.divisor for micro in cut.micro_batches} == {5.0}


def test_one_process_divides_by_the_accumulation_exactly() -> None:
    assert {m.divisor for m in cut_step(12 * 40, batch_size=12).micro_batches} == {40.0}


def test_more_processes_than_sequences_are_refused_with_what_fits() -> None:
    with pytest.raises(
        ConfigError, match=r"9 processes cannot share a step of 8 [\s\S]*at most 8 processes, or --gradient"
    ):
        cut_step(8, batch_size=4, rank=0, size=9)

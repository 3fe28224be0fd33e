from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gptwright.data.sampling import (
    SamplingMode,
    WindowReader,
    WindowSampler,
    evaluation_starts,
    window_count,
)
from gptwright.data.splits import Shard, TokenSplit
from gptwright.errors import DataError

MODES: list[SamplingMode] = ["random", "epoch"]


def split_of(*lengths: int, name: str = "train") -> TokenSplit:
    """Shards whose ids count on, so that a window tells where it came from."""
    ids = np.arange(sum(lengths), dtype="<u2")
    parts = np.split(ids, np.cumsum(lengths)[:-1])
    shards = tuple(Shard(Path(f"train-{index:05d}.bin"), part) for index, part in enumerate(parts))
    return TokenSplit(name=name, shards=shards, vocab_size=max(1, len(ids)), text_bytes=None)


def sampler(
    split: TokenSplit, mode: SamplingMode, *, seed: int = 1, block: int = 4, n: int = 3
) -> WindowSampler:
    return WindowSampler(split, block_size=block, sequences_per_step=n, seed=seed, mode=mode)


@pytest.mark.parametrize("mode", MODES)
@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.integers(0, 60), min_size=1, max_size=5).filter(lambda sizes: max(sizes) > 4),
    step=st.integers(0, 10_000),
    seed=st.integers(0, 2**63),
)
def test_a_window_is_contiguous_and_inside_one_shard(
    mode: SamplingMode, lengths: list[int], step: int, seed: int
) -> None:
    split = split_of(*lengths)
    x_NT, y_NT = sampler(split, mode, seed=seed).batch(step)
    assert x_NT.shape == y_NT.shape == (3, 4)
    assert x_NT.dtype == y_NT.dtype == np.int64
    assert np.array_equal(y_NT, x_NT + 1)
    assert np.array_equal(x_NT, x_NT[:, :1] + np.arange(4))
    ends = np.cumsum(lengths)
    assert np.array_equal(
        np.searchsorted(ends, x_NT[:, 0], side="right"), np.searchsorted(ends, y_NT[:, -1], side="right")
    )


@pytest.mark.parametrize("mode", MODES)
def test_a_batch_is_a_pure_function_of_seed_and_step(mode: SamplingMode) -> None:
    split = split_of(500, 300)
    one, other = sampler(split, mode), sampler(split, mode)
    forwards = [one.batch(step)[0].tolist() for step in range(200)]
    backwards = [other.batch(step)[0].tolist() for step in reversed(range(200))]
    assert forwards == backwards[::-1]
    assert len({str(batch) for batch in forwards}) > 190
    assert forwards != [sampler(split, mode, seed=2).batch(step)[0].tolist() for step in range(200)]


@pytest.mark.parametrize("mode", MODES)
def test_shares_of_a_batch_are_the_batch(mode: SamplingMode) -> None:
    """What several processes read, each its rows, is what one reads."""
    split = split_of(500, 300)
    whole = sampler(split, mode, n=7).batch(5)
    shares = [
        WindowSampler(split, block_size=4, sequences_per_step=7, seed=1, mode=mode, rows=rows).batch(5)
        for rows in (slice(0, 3), slice(3, 5), slice(5, 7))
    ]
    for number in (0, 1):
        assert np.array_equal(np.concatenate([share[number] for share in shares]), whole[number])


def test_the_stream_is_frozen() -> None:
    # If these change, runs no longer resume and results no longer repeat across versions.
    split = split_of(1000)
    assert sampler(split, "random", seed=1337).starts(7).tolist() == [368, 378, 680]
    assert sampler(split, "epoch", seed=1337).starts(7).tolist() == [548, 396, 220]
    assert evaluation_starts(split, block_size=4, windows=3, seed=1337).tolist() == [180, 608, 988]


@pytest.mark.parametrize("sequences", [1, 3, 7, 50])
def test_an_epoch_visits_each_window_once(sequences: int) -> None:
    split = split_of(41, 3, 30, 5)
    drawn = sampler(split, "epoch", n=sequences)
    assert drawn.windows_per_epoch == 10 + 0 + 7 + 1
    needed = -(-3 * 18 // sequences)
    starts = np.concatenate([drawn.starts(step) for step in range(needed)])[: 3 * 18].reshape(3, 18)
    expected = [*range(0, 40, 4), *range(44, 72, 4), 74]
    for one_pass in starts:
        assert sorted(one_pass.tolist()) == expected
    assert len({tuple(one_pass) for one_pass in starts.tolist()}) == 3


def test_random_starts_are_uniform_over_nanogpts_range() -> None:
    split = split_of(14, 4, 9)
    drawn = sampler(split, "random", n=200)
    seen = Counter(start for step in range(200) for start in drawn.starts(step).tolist())
    # A start in [0, n - block_size) of each shard; the shard of 4 tokens has none.
    assert sorted(seen) == [*range(10), *range(18, 23)]
    expected = 40_000 / 15
    # Six standard deviations of a binomial count.
    assert all(abs(number - expected) < 6 * expected**0.5 for number in seen.values())


def test_epochs_count_windows() -> None:
    drawn = sampler(split_of(41), "epoch", n=5)
    assert drawn.epochs_at(0) == 0
    assert drawn.epochs_at(2) == 1.0
    assert drawn.epochs_at(5) == 2.5


@pytest.mark.parametrize("mode", MODES)
def test_an_id_outside_the_vocabulary_stops_the_batch(mode: SamplingMode) -> None:
    split = split_of(30, 30)
    drawn = WindowSampler(split, block_size=4, sequences_per_step=64, seed=1, mode=mode, vocab_limit=31)
    with pytest.raises(
        DataError, match=r"shard train-00001\.bin has token id (3\d|4\d|5\d) at position \d+, outside"
    ):
        [drawn.batch(step) for step in range(5)]


def test_the_last_target_is_checked_too() -> None:
    split = split_of(5)
    with pytest.raises(DataError, match="has token id 4 at position 4, outside the vocabulary of 4"):
        WindowSampler(split, block_size=4, sequences_per_step=1, seed=1, mode="epoch", vocab_limit=4).batch(0)
    WindowSampler(split, block_size=4, sequences_per_step=1, seed=1, mode="epoch", vocab_limit=5).batch(0)


@pytest.mark.parametrize("mode", MODES)
def test_a_split_without_a_window_is_refused(mode: SamplingMode) -> None:
    with pytest.raises(DataError, match="the training split has 8 tokens, block_size is 4"):
        sampler(split_of(4, 4), mode)
    with pytest.raises(DataError, match="the validation split has 4 tokens"):
        evaluation_starts(split_of(4, name="val"), block_size=4, windows=3, seed=1)


def test_evaluation_takes_all_windows_or_a_fixed_subset() -> None:
    split = split_of(41, 30)
    everything = [*range(0, 40, 4), *range(41, 69, 4)]
    assert window_count(split, 4) == 17
    for windows in (17, 1000):
        assert evaluation_starts(split, block_size=4, windows=windows, seed=1).tolist() == everything
    some = evaluation_starts(split, block_size=4, windows=6, seed=1).tolist()
    assert some == sorted(set(some))
    assert len(some) == 6
    assert set(some) <= set(everything)
    assert some == evaluation_starts(split, block_size=4, windows=6, seed=1).tolist()
    others = [evaluation_starts(split, block_size=4, windows=6, seed=seed).tolist() for seed in range(2, 8)]
    assert others.count(some) < 6


def test_a_reader_gives_the_windows_asked_for() -> None:
    split = split_of(41, 30)
    x_NT, y_NT = WindowReader(split, 4, split.vocab_size).read(np.array([0, 41, 36]))
    assert x_NT.tolist() == [[0, 1, 2, 3], [41, 42, 43, 44], [36, 37, 38, 39]]
    assert np.array_equal(y_NT, x_NT + 1)


@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.integers(0, 90), min_size=1, max_size=4).filter(lambda sizes: max(sizes) > 4),
    sequences=st.integers(1, 13),
    seed=st.integers(0, 2**63),
    stops=st.lists(st.integers(1, 40), min_size=1, max_size=4),
)
def test_an_epoch_visits_each_window_once_across_resume(
    lengths: list[int], sequences: int, seed: int, stops: list[int]
) -> None:
    """A resumed run is a new sampler that begins at a later step."""
    split = split_of(*lengths)
    visited: list[int] = []
    step = 0
    windows = sampler(split, "epoch").windows_per_epoch
    while len(visited) < 3 * windows:
        resumed = sampler(split, "epoch", seed=seed, n=sequences)
        for _ in range(stops[step % len(stops)]):
            visited += resumed.starts(step).tolist()
            step += 1
    expected = sorted(
        start + index * 4
        for start, length in zip(split.offsets, lengths, strict=True)
        for index in range(max(0, length - 1) // 4)
    )
    for number in range(3):
        assert sorted(visited[number * windows : (number + 1) * windows]) == expected

"""What an evaluation's design says about its error."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gptwright.arithmetic.evaluation import (
    evaluation_error,
    per_sequence_sd,
    seed_noise,
    stretch_error,
    text_kind,
)


@pytest.mark.parametrize(("crops", "sd"), [(8, 0.156), (16, 0.094), (32, 0.068)])
def test_per_step_losses_of_public_runs(crops: int, sd: float) -> None:
    assert per_sequence_sd(1024, "bpe").sd / math.sqrt(crops) == pytest.approx(sd, rel=0.12)


def test_shards_read_in_order() -> None:
    assert per_sequence_sd(1024, "bpe-sequential").sd / math.sqrt(512) == pytest.approx(0.043, rel=0.05)


@pytest.mark.parametrize(
    ("length", "sd"), [(64, 0.220), (128, 0.171), (256, 0.135), (512, 0.107), (1024, 0.085), (2048, 0.066)]
)
def test_windows_of_shakespeare(length: int, sd: float) -> None:
    assert per_sequence_sd(length, "char").sd == pytest.approx(sd, rel=0.05)


def test_what_is_assumed_is_said() -> None:
    assert "assumed" in per_sequence_sd(256, "bpe").basis
    assert "assumed" not in per_sequence_sd(1024, "bpe").basis
    assert "assumed" not in per_sequence_sd(256, "char").basis


def test_the_readme_run_for_a_cpu() -> None:
    # 20 batches of 12 windows of 64 characters: the printed loss had a standard error of 0.015
    error = evaluation_error(batches=20, batch_size=12, block_size=64, split_tokens=111_540, vocab_size=65)
    assert error.of_mean == pytest.approx(0.0145, abs=0.0008)
    assert (error.windows, error.effective_windows) == (240, 240)


def test_a_split_of_five_windows_read_three_thousand_times() -> None:
    error = evaluation_error(
        batches=200, batch_size=16, block_size=1024, split_tokens=5600, vocab_size=50_304, contiguous=True
    )
    # its evaluations scattered by 0.008 around their trend
    assert error.of_mean == pytest.approx(0.008, abs=0.002)
    assert error.effective_windows == pytest.approx(5.47, abs=0.01)
    assert error.of_split is not None
    assert error.of_split > 0.17
    assert error.total == pytest.approx(math.hypot(error.of_mean, error.of_split))


def test_one_stretch_is_worth_fewer_windows() -> None:
    loose, stretch = (
        evaluation_error(
            batches=200, batch_size=64, block_size=256, split_tokens=111_540, vocab_size=65, contiguous=one
        ).of_split
        for one in (False, True)
    )
    assert loose is not None
    assert stretch is not None
    assert stretch == stretch_error(111_540, "char")
    assert 1.2 < stretch / loose < 2.5


def test_an_unknown_split() -> None:
    error = evaluation_error(batches=1, batch_size=16, block_size=2048, split_tokens=None)
    assert (error.of_split, error.total) == (None, None)
    assert error.of_mean == pytest.approx(
        0.078, abs=0.002
    )  # a public run with eval_iters = 1 scattered by 0.1


@given(
    batches=st.integers(1, 400),
    batch_size=st.integers(1, 64),
    split_windows=st.floats(0.5, 1e5),
    fixed=st.booleans(),
)
def test_errors_are_finite_and_ordered(
    batches: int, batch_size: int, split_windows: float, fixed: bool
) -> None:
    error = evaluation_error(
        batches=batches,
        batch_size=batch_size,
        block_size=64,
        split_tokens=split_windows * 64,
        per_sequence_sd=0.3,
        fixed=fixed,
    )
    assert error.of_split is not None
    assert error.total is not None
    assert 0 <= error.of_mean <= 0.3
    assert 0 < error.of_split <= 0.3
    assert max(error.of_mean, error.of_split) <= error.total <= 0.3 * math.sqrt(2)
    assert error.effective_windows <= error.windows


@pytest.mark.parametrize("fixed", [False, True])
def test_both_errors_are_how_far_means_scatter(fixed: bool) -> None:
    rng = np.random.default_rng(0)
    windows, drawn = 100, 40
    around_split, around_corpus = [], []
    for _ in range(3000):
        split = rng.normal(3.0, 0.3, windows)
        chosen = rng.choice(windows, drawn, replace=not fixed)
        around_split.append(split[chosen].mean() - split.mean())
        around_corpus.append(split[chosen].mean() - 3.0)
    error = evaluation_error(
        batches=drawn, batch_size=1, block_size=10, split_tokens=1000, per_sequence_sd=0.3, fixed=fixed
    )
    assert error.of_mean == pytest.approx(np.std(around_split), rel=0.05)
    assert error.total == pytest.approx(np.std(around_corpus), rel=0.05)


def test_a_fixed_set_that_is_the_whole_split_has_no_error_of_its_own() -> None:
    error = evaluation_error(
        batches=125, batch_size=8, block_size=512, split_tokens=512_000, vocab_size=50_257, fixed=True
    )
    assert error.of_mean == 0
    assert error.of_split is not None
    assert error.total == error.of_split


def test_vocabularies() -> None:
    assert [text_kind(size) for size in (65, 256, 1024, 50_304)] == ["char", "char", "bpe", "bpe"]


def test_seeds() -> None:
    large, small = seed_noise(124e6, 10e9), seed_noise(795_904, 1.5e6)
    assert large.standard_deviation == 0.00135
    assert 0.003 < small.standard_deviation < 0.008
    for parameters, tokens in ((30e6, 1e9), (124e6, 1e8), (None, None)):
        unmeasured = seed_noise(parameters, tokens)
        assert unmeasured.standard_deviation >= small.standard_deviation
        assert "not measured" in unmeasured.basis
    assert seed_noise(124e6).standard_deviation == 0.00135

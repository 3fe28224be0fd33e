"""A thinned curve has every extreme, every gap and both ends, whatever the curve."""

import time

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from gptwright.report.thinning import TREND_WINDOWS, thin, trend_of

VALUES = arrays(
    np.float64,
    st.integers(1, 400),
    elements=st.one_of(st.floats(-1e6, 1e6), st.sampled_from([np.nan, np.inf])),
)


@given(VALUES, st.integers(1, 40))
def test_extremes_gaps_and_ends_stay_and_nothing_is_made_up(value: np.ndarray, buckets: int) -> None:
    step = np.arange(len(value)) * 3
    at, kept = thin(step, value, buckets=buckets)
    assert len(at) <= max(2 * buckets, 3 * buckets + 2)
    assert at[0] == 0
    assert at[-1] == step[-1]
    assert (np.diff(at) > 0).all()
    np.testing.assert_array_equal(kept, value[at // 3])
    finite = value[np.isfinite(value)]
    if len(finite):
        assert kept[np.isfinite(kept)].min() == finite.min()
        assert kept[np.isfinite(kept)].max() == finite.max()
    assert np.isfinite(kept).all() == np.isfinite(value).all()


def test_every_spike_of_a_million_steps_is_drawn_at_its_height() -> None:
    rng = np.random.default_rng(1)
    value = 3 + rng.normal(0, 0.05, 1_000_000)
    spikes = rng.choice(len(value), 40, replace=False)
    value[spikes] = 9 + rng.random(40)
    value[500_000] = np.nan
    begin = time.process_time()
    at, kept = thin(np.arange(len(value)), value)
    assert time.process_time() - begin < 2
    assert len(at) < 3_100
    drawn = set(kept[kept > 8].tolist())
    # Two spikes of one bucket are one pixel apart; the higher one is drawn.
    assert len(drawn) >= 38
    assert max(value[spikes]) in drawn
    assert np.isnan(kept[at == 500_000]).all()


def test_the_trend_lies_in_the_noise_and_a_spike_does_not_move_it() -> None:
    rng = np.random.default_rng(2)
    step = np.arange(5_000)
    truth = 3 + 4 * np.exp(-step / 400)
    value = truth + rng.normal(0, 0.1, len(step))
    value[2_500] = 60
    trend = trend_of(step, value)
    assert trend is not None
    assert len(trend.step) == TREND_WINDOWS
    late = trend.step > 400
    assert abs(trend.middle - np.interp(trend.step, step, truth))[late].max() < 0.08
    assert 0.07 < np.median((trend.high - trend.low) / 2) < 0.13


def test_a_short_log_has_no_trend() -> None:
    assert trend_of(np.arange(20), np.ones(20)) is None

"""A run folded from its records: where it is, how long it still takes, and what does not hurt it."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gptwright.record.metrics import Record
from gptwright.record.progress import POINTS, RunProgress, Thinned


def train(step: int, **fields: object) -> Record:
    return {"kind": "train", "step": step, "time": 100.0 + step, "loss_mean": 2.0, "seconds": 0.5} | fields


def evaluation(step: int, loss: float | str) -> Record:
    return {"kind": "eval", "step": step, "time": 100.0 + step, "val_loss": loss, "seconds": 10.0}


def test_time_left_counts_steps_and_evaluations_to_come() -> None:
    progress = RunProgress(max_iters=1000, eval_interval=250)
    assert progress.seconds_left is None
    progress.add(evaluation(0, 4.0))
    for step in range(100):
        progress.add(train(step))
    progress.add(train(100, seconds=60.0))
    # 899 steps of half a second, and evaluations at 250, 500, 750 and 1000; one slow step changes nothing.
    assert progress.step == 101
    assert progress.seconds_left == pytest.approx(899 * 0.5 + 4 * 10)
    assert progress.usual_gap == pytest.approx(1.0)


def test_the_best_evaluation_is_the_lowest_finite_one() -> None:
    progress = RunProgress()
    losses: list[float | str] = [3.0, 2.5, "nan", 2.7]
    for step, loss in enumerate(losses):
        progress.add(evaluation(step, loss))
    assert progress.best is not None
    assert progress.best["step"] == 1
    assert progress.evaluation is not None
    assert progress.evaluation["step"] == 3


def test_an_ended_run_that_is_resumed_goes_on() -> None:
    progress = RunProgress()
    progress.add({"kind": "end", "step": 5, "state": "failed", "reason": "loss is nan", "time": 1.0})
    assert (progress.ending, progress.reason) == ("failed", "loss is nan")
    progress.add({"kind": "resume", "step": 4, "time": 9000.0})
    assert (progress.ending, progress.reason, progress.step) == (None, None, 4)
    # The night between the two processes is no interval of the run.
    assert progress.longest_gap == 0.0


@given(st.lists(st.floats(-1e6, 1e6), max_size=2000))
def test_a_thinned_curve_stays_short_and_keeps_its_mean(values: list[float]) -> None:
    curve = Thinned()
    for value in values:
        curve.add(value)
    assert len(curve.values) <= POINTS + 1
    whole = len(curve.means) * curve.share
    if whole:
        expected = sum(values[:whole]) / whole
        assert sum(curve.means) / len(curve.means) == pytest.approx(expected, rel=1e-6, abs=1e-3)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists))
def test_records_with_anything_in_them_leave_counts_and_times_that_make_sense(value: object) -> None:
    names = ("step", "time", "loss_mean", "seconds", "val_loss", "max_iters", "state", "reason")
    progress = RunProgress(eval_interval=10)
    for kind in ("start", "train", "eval", "end", "resume", value):
        progress.add({"kind": kind} | dict.fromkeys(names, value))
        assert progress.step >= 0
        assert (progress.seconds_left or 0) >= 0
        assert (progress.usual_gap or 0) >= 0
        assert all(map(math.isfinite, progress.losses.values))

"""A log of several runs: nothing that is said of the last one comes from those before it."""

import numpy as np
import pytest

from gptwright.diagnose.engine import diagnose
from gptwright.diagnose.judging import Diagnosis
from gptwright.diagnose.reading import read_run
from gptwright.record.evidence import RunEvidence
from gptwright.record.readers import read_log

LAPTOP = """number of parameters: 0.80M
iter 1990: loss 1.7012, time 118.30ms, mfu 0.01%
iter 1991: loss 1.6544, time 116.30ms, mfu 0.01%
iter 1992: loss 1.7544, time 120.30ms, mfu 0.01%
step 2000: train loss 1.7648, val loss 1.8857
"""
CARD = """number of parameters: 10.65M
iter 4970: loss 0.8331, time 31.02ms, mfu 9.97%
iter 4980: loss 0.8231, time 31.02ms, mfu 9.97%
iter 4990: loss 0.8193, time 30.98ms, mfu 9.99%
step 5000: train loss 0.6201, val loss 1.6994
"""
FAILURE = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.30 GiB.\n"


def diagnosis(text: str) -> Diagnosis:
    log = read_log(None, data=text.encode())
    return diagnose(read_run(RunEvidence(path="-", log=log, config=None, stated={})))


def found(text: str) -> set[str]:
    return {finding.id for finding in diagnosis(text).findings}


def test_a_model_of_another_size_is_another_run_though_its_steps_go_on() -> None:
    command = "python train.py --batch_size=12 --block_size=64 --gradient_accumulation_steps=1\n"
    reading = diagnosis(command + LAPTOP + CARD).reading
    assert reading.train is not None
    np.testing.assert_array_equal(reading.train.step, [4970, 4980, 4990])
    assert reading.speed.step_seconds is not None
    assert reading.speed.step_seconds.number == pytest.approx(0.0310)
    # The command was the other model's.
    assert reading.speed.tokens_per_step is None
    assert "several-runs" in found(LAPTOP + CARD)


def test_the_same_model_printed_again_goes_on() -> None:
    assert "several-runs" not in found(CARD + CARD.replace("step 5", "step 6").replace("iter 4", "iter 5"))


def test_no_finding_compares_two_runs() -> None:
    rising = "step 5000: train loss 0.0812, val loss 4.4123\n"
    text = f"{rising}step 250: train loss 1.9, val loss 2.0\nstep 500: train loss 1.5, val loss 1.7\n"
    assert "overfitting" not in found(text)
    assert "several-runs" in found(text)


@pytest.mark.parametrize("steps", [1, 3])
def test_a_failure_is_of_the_run_that_it_ended(steps: int) -> None:
    lines = [f"iter {10 * step}: loss {9 - step}.1234, time 1234.11ms, mfu 12.00%\n" for step in range(steps)]
    header = "number of parameters: 123.59M\n"
    run = header + "".join(lines)
    assert "out-of-memory" in found(run + FAILURE)
    assert "out-of-memory" not in found(run + FAILURE + run)
    assert "several-runs" in found(run + FAILURE + run)
    assert "out-of-memory" in found(run + FAILURE + run + FAILURE)

"""Numbers with a comma: decimals where a loss has them, else thousands, and never the half of a number."""

import math

import numpy as np
import pytest

from gptwright.record.evidence import LogEvidence
from gptwright.record.readers import read_log
from gptwright.record.readers.decimal_commas import with_points


def read(text: str) -> LogEvidence:
    return read_log(None, data=text.encode())


def test_a_nanogpt_log_retyped_with_commas_is_read_as_that() -> None:
    log = read(
        "tokens per iteration will be: 65,536\n"
        "step 0: train loss 4,2874, val loss 4,2823\n"
        "iter 0: loss 4,2664, time 5218,30ms, mfu -100,00%\n"
        "iter 10: loss 3,2664, time 31,30ms, mfu 9,90%\n"
        "step 250: train loss 1,9874, val loss 2,0823\n"
    )
    assert log.format.name == "nanoGPT"
    assert log.header["tokens_per_step"].value == 65_536
    np.testing.assert_array_equal(log.train.loss, [4.2664, 3.2664])
    np.testing.assert_allclose(log.train.seconds, [5.2183, 0.0313])
    assert log.train.mfu[1] == pytest.approx(0.099)
    np.testing.assert_array_equal(log.evals.val_loss, [4.2823, 2.0823])
    assert log.hazards["decimal commas"] == 4 + 6


@pytest.mark.parametrize(
    ("line", "read_as"),
    [
        ("step 1,500: train loss 4,21, val loss 4,11", "step 1,500: train loss 4.21, val loss 4.11"),
        ("loss 4,521 lr 0,0003 norm 1,21 12,500 tok/s", "loss 4.521 lr 0.0003 norm 1.21 12,500 tok/s"),
        ("step 5 | train 4,52 | val 4,6", "step 5 | train 4.52 | val 4.6"),
        ("loss: 4,21; devices 0,1,2", "loss: 4.21; devices 0,1,2"),
        ("train: 12,500 documents, val: 1,250", "train: 12,500 documents, val: 1,250"),
        ("loss 4.21, time 12,345 ms on devices 0,1", "loss 4.21, time 12,345 ms on devices 0,1"),
        ("val_loss: [4,3,2]", "val_loss: [4,3,2]"),
    ],
)
def test_only_what_cannot_part_thousands_is_a_decimal_comma(line: str, read_as: str) -> None:
    assert with_points(line)[0] == read_as


@pytest.mark.parametrize(
    ("perplexity", "loss"),
    [("1,103.2", math.log(1103.2)), ("1,234,567.5", math.log(1234567.5)), ("52.1", math.log(52.1))],
)
def test_a_perplexity_with_thousands_is_read_whole(perplexity: str, loss: float) -> None:
    log = read(f"step 100 | loss 7.12\nstep 200 | loss 6.72\neval step 200 | val ppl {perplexity}\n")
    np.testing.assert_allclose(log.evals.val_loss, [loss])


def test_a_number_that_may_have_thousands_or_decimals_is_not_read() -> None:
    log = read("step 100 | loss 7.12\nstep 200 | loss 6.72\neval step 200 | val ppl 45,213\n")
    assert len(log.train) == 2
    assert not len(log.evals)


@pytest.mark.parametrize("separator", [";", "\t", "|"])
def test_a_table_with_decimal_commas(separator: str) -> None:
    rows = [["Step", "Training Loss", "Validation Loss"]]
    rows += [["1,000", "4,213", "4,32"], ["2,000", "3,913", "4,02"]]
    log = read("".join(separator.join(row) + "\n" for row in rows))
    np.testing.assert_array_equal(log.train.step, [1000, 2000])
    np.testing.assert_array_equal(log.train.loss, [4.213, 3.913])
    np.testing.assert_array_equal(log.evals.val_loss, [4.32, 4.02])

"""The log has nanoGPT's line shapes, to the character."""

from gptwright.record.log_text import log_lines, log_text
from gptwright.record.metrics import Record
from gptwright.record.readers import read_log

START: Record = {
    "kind": "start", "step": 0, "tokens_per_step": 65536, "vocab_size": 65, "parameters_nanogpt": 29_940_000,
    "decayed_tensors": 26, "decayed_parameters": 30_326_784, "not_decayed_tensors": 13,
    "not_decayed_parameters": 4992, "device": "CPU", "dtype": "float32", "peak_flops": 161.2e9,
}  # fmt: skip
EVAL: Record = {
    "kind": "eval", "step": 500, "train_loss": 4.81231, "val_loss": 4.83099,
    "train_loss_standard_error": 0.0123, "val_loss_standard_error": 0.0145,
}  # fmt: skip
TRAIN: Record = {"kind": "train", "step": 10, "loss": 9.43212, "seconds": 0.2044, "mfu": 0.2137}


def test_the_start_is_nanogpts_header() -> None:
    assert log_lines(START)[:2] == ["tokens per iteration will be: 65,536", "vocab_size = 65"]
    assert log_lines(START)[2:5] == [
        "number of parameters: 29.94M",
        "num decayed parameter tensors: 26, with 30,326,784 parameters",
        "num non-decayed parameter tensors: 13, with 4,992 parameters",
    ]
    assert "measured matmul peak 161.2 GFLOP/s (mfu is relative to it)" in log_lines(START)[5]


def test_steps_and_evaluations_are_nanogpts_lines() -> None:
    assert log_lines(TRAIN) == ["iter 10: loss 9.4321, time 204.40ms, mfu 21.37%"]
    assert log_lines(EVAL) == [
        "step 500: train loss 4.8123, val loss 4.8310 (standard errors 0.0123, 0.0145)"
    ]
    assert log_lines(EVAL | {"val_loss_standard_error": None}) == [
        "step 500: train loss 4.8123, val loss 4.8310"
    ]


def test_a_loss_that_is_no_number_stays_its_name() -> None:
    assert log_lines(TRAIN | {"loss": "nan"}) == ["iter 10: loss nan, time 204.40ms, mfu 21.37%"]


def test_the_whole_log_is_made_from_the_records() -> None:
    records = [{"kind": "resume", "step": 8}, TRAIN, {"kind": "end", "step": 11, "state": "stopped"}]
    assert log_text(records) == (
        "Resuming training from step 8\niter 10: loss 9.4321, time 204.40ms, mfu 21.37%\nstopped at step 11\n"
    )


def test_every_line_is_read_again() -> None:
    records: list[Record] = [
        START, EVAL, TRAIN, {"kind": "resume", "step": 8},
        {"kind": "guard", "step": 9, "text": "skipping update 9"},
        {"kind": "import", "step": 10, "origin": "nanoGPT"}, TRAIN | {"step": 11},
        {"kind": "end", "step": 11, "state": "stopped"},
    ]  # fmt: skip
    for end in range(3, len(records) + 1):
        evidence = read_log(None, data=log_text(records[:end]).encode())
        assert evidence.lines_skipped == 0, log_text(records[:end])


def test_an_evaluation_that_is_no_number_is_a_line_all_the_same() -> None:
    record: Record = {
        "kind": "eval", "step": 8, "train_loss": "nan", "val_loss": "inf",
        "train_loss_standard_error": "nan", "val_loss_standard_error": "nan",
    }  # fmt: skip
    line = "step 8: train loss nan, val loss inf (standard errors nan, nan)"
    assert log_lines(record) == [line]

"""A promise beside its outcome."""

from gptwright.report.outcome import outcomes

PROMISE = {
    "tokens_per_second": {"low": 900.0, "likely": 1000.0, "high": 1200.0},
    "seconds": None,
    "peak_memory_bytes": 2**30,
    "val_loss": {"low": 1.7, "likely": 1.8, "high": 1.9},
}


def test_every_promise_that_has_an_outcome_is_a_row() -> None:
    rows = outcomes(PROMISE, tokens_per_second=1100, peak_memory_bytes=3 * 2**29, best_val_loss=1.95)
    assert [(row.name, row.likely, row.band, row.came, row.place) for row in rows] == [
        ("tokens/s", "1,000", "900 to 1,200", "1,100", "inside"),
        ("memory", "1.0 GiB", "", "1.5 GiB", ""),
        ("best val loss", "1.800", "1.700 to 1.900", "1.9500", "above"),
    ]


def test_what_was_not_promised_or_did_not_come_is_left_out() -> None:
    edited = {"tokens_per_second": {"low": 1}, "val_loss": 3, "peak_memory_bytes": "much"}
    assert outcomes(edited, tokens_per_second=1.0, peak_memory_bytes=1.0, best_val_loss=1.0) == []
    assert outcomes({}, tokens_per_second=1.0, peak_memory_bytes=1.0, best_val_loss=1.0) == []
    assert outcomes(PROMISE, tokens_per_second=None, peak_memory_bytes=None, best_val_loss=None) == []

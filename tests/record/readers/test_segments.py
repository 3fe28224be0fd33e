"""Resumes, restarts, and several runs in one file."""

import pytest

from gptwright.record.evidence import EventKind, LogEvidence
from tests.record.readers.samples import nanogpt
from tests.record.readers.test_golden import read


def lines(first: int, last: int, *, every: int = 10) -> list[str]:
    """Training lines of some steps."""
    return [
        f"iter {step}: loss {5 - step / 1000:.4f}, time 100.00ms, mfu 20.00%"
        for step in range(first, last, every)
    ]


def evidence(*parts: list[str]) -> LogEvidence:
    return read("\n".join(line for part in parts for line in part) + "\n")


HEADER = ["tokens per iteration will be: 65,536", "number of parameters: 29.94M"]
RESUMING = ["Resuming training from out"]


def resumes(log: LogEvidence) -> list[tuple[int, int | None]]:
    return [(event.line, event.step) for event in log.events if event.kind is EventKind.RESUME]


def test_a_resume_begins_a_segment_once() -> None:
    log = evidence(HEADER, lines(0, 100), HEADER, RESUMING, HEADER, lines(50, 150))
    assert list(log.train.segment) == [0] * 10 + [1] * 10
    assert resumes(log) == [(15, 90)]
    assert "runs in one file" not in log.hazards
    assert log.last_run_segment == 0


def test_a_step_that_goes_back_is_a_resume_without_a_line_that_says_so() -> None:
    log = evidence(lines(1000, 1100), lines(1050, 1150))
    assert list(log.train.segment) == [0] * 10 + [1] * 10
    assert resumes(log) == [(11, 1090)]
    assert log.events[0].text == "goes on at step 1050 after step 1090"


def test_a_second_header_is_a_resume_even_if_no_step_goes_back() -> None:
    log = evidence(HEADER, lines(0, 100), HEADER, lines(100, 150))
    assert list(log.train.segment) == [0] * 10 + [1] * 5
    assert resumes(log) == [(15, 90)]


def test_a_resume_before_the_first_line_is_no_break() -> None:
    log = evidence(HEADER, RESUMING, lines(500, 600))
    assert set(log.train.segment) == {0}
    assert resumes(log) == [(3, None)]


def test_a_run_that_starts_again_is_another_run() -> None:
    log = evidence(
        HEADER, lines(0, 100), HEADER, lines(0, 60), HEADER, RESUMING, lines(50, 80), HEADER, lines(0, 30)
    )
    assert list(log.train.segment) == [0] * 10 + [1] * 6 + [2] * 3 + [3] * 3
    assert log.hazards["runs in one file"] == 3
    assert log.last_run_segment == 3
    assert resumes(log) == [(23, 50)]


def test_an_excerpt_that_starts_at_its_first_step_again_is_another_run() -> None:
    log = evidence(lines(500, 600), lines(500, 560))
    assert log.hazards["runs in one file"] == 2
    assert log.last_run_segment == 1


def test_the_last_header_counts() -> None:
    log = evidence(HEADER, lines(0, 50), ["tokens per iteration will be: 131,072"], lines(0, 50))
    assert log.header["tokens_per_step"].value == 131072
    assert log.header["tokens_per_step"].source == "log:8"


def test_evaluations_are_in_the_segment_of_their_process() -> None:
    sample = nanogpt()
    log = read(sample.text + sample.text)
    half = len(sample.evals)
    assert list(log.evals.segment) == [0] * half + [1] * half
    assert list(log.train.segment) == [0] * len(sample.train) + [1] * len(sample.train)
    assert log.hazards["runs in one file"] == 2


def test_a_stuck_counter_or_an_evaluation_at_the_same_step_is_no_break() -> None:
    log = evidence(lines(0, 50), ["step 50: train loss 4.0000, val loss 4.1000"], lines(50, 100))
    assert set(log.train.segment) == {0}
    assert not log.events


def test_another_model_behind_a_table_of_llmc() -> None:
    """What the table says is the run's before, the lowest rate too, which is a share of the highest."""
    table = "".join(
        f"| {name:<21} | {value:<50} |\n"
        for name, value in (
            ("learning rate (LR)", "6.000000e-04"),
            ("final LR fraction", "1.000000e-01"),
            ("num_parameters", "124475904"),
        )
    )
    rows = "".join(
        f"step {step:4d}/100 | loss 9.000000 (+nanz)| norm 1.2345 (+nanz)| lr 3.00e-04 | 120.00 ms |"
        " 40.1% bf16 MFU | 480000 tok/s\n"
        for step in range(1, 9)
    )
    before = read(table + rows)
    assert before.settings["min_lr"].number == pytest.approx(6e-5)
    log = read(table + rows + "num_parameters: 774030080\n" + rows)
    assert log.header["parameters_total"].value == 774_030_080
    assert "min_lr" not in log.settings

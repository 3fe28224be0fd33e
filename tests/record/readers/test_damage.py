"""What terminals, pipes, forums and crashes do to a log: read as if it had not been, or left out, counted."""

import math
import random
import re
from collections.abc import Callable

import numpy as np
import pytest

from gptwright.record.evidence import LogEvidence
from tests.record.readers.samples import SAMPLES, Row, Sample, modded, nanochat, nanogpt, trainer_state
from tests.record.readers.test_golden import EVALS, TRAIN, assert_table, read

MADE = [make() for make in SAMPLES]
# Lines that are JSON are no lines any more with something in front of them or a break inside.
LINES = [sample for sample in MADE if "json" not in sample.name]
BY_NAME = pytest.mark.parametrize("sample", LINES, ids=lambda sample: sample.name)
# Their lines begin with the step itself.
NUMBER_FIRST = ("llama2.c", "build-nanogpt log.txt")


def assert_same(
    evidence: LogEvidence, sample: Sample, line: Callable[[int], int] = lambda line: line
) -> None:
    """The evidence is that of the undamaged sample, whose line numbers have become others."""
    assert evidence.format.name == sample.format
    assert_table(evidence.train, [row | {"line": line(int(row["line"]))} for row in sample.train], TRAIN)
    assert_table(evidence.evals, [row | {"line": line(int(row["line"]))} for row in sample.evals], EVALS)
    assert {name: fact.value for name, fact in evidence.header.items()} == sample.header
    assert {name: fact.value for name, fact in evidence.settings.items()} == sample.settings


@pytest.mark.parametrize("sample", MADE, ids=lambda sample: sample.name)
@pytest.mark.parametrize(
    ("encode", "hazard"),
    [
        (lambda text: text.replace("\n", "\r\n").encode(), "Windows line ends"),
        (lambda text: text.encode("utf-16"), "UTF-16 text"),
        (lambda text: text.encode("utf-16-le"), "UTF-16 text"),
        (lambda text: text.encode("utf-16-be"), "UTF-16 text"),
        (lambda text: text.encode("utf-8-sig"), "control characters"),
        (lambda text: text.encode().replace(b"\n", b"\x00\n\x00"), "NUL bytes"),
    ],
    ids=["crlf", "utf-16", "utf-16-le", "utf-16-be", "bom", "nul"],
)
def test_other_encodings_and_line_ends(sample: Sample, encode: Callable[[str], bytes], hazard: str) -> None:
    evidence = read(encode(sample.text))
    assert_same(evidence, sample)
    assert evidence.hazards[hazard] >= 1
    assert evidence.lines_skipped == 0


@BY_NAME
@pytest.mark.parametrize(
    "prefix",
    [
        "[2023-03-17 09:12:05] ",
        "2024-05-01T10:00:00.123Z ",
        "[rank0]: ",
        "> ",
        "> > ",
        "INFO:root:",
        "2024-05-01 10:00:00,123 - root - INFO - ",
        "0: ",
        "[default0]:",
        "[default0]: ",
        "2024-05-01 10:00:00,123 - __main__ - INFO - ",
        "Mar  1 10:00:05 gpubox python[48213]: ",
        "2024-05-01 10:00:00.123 | INFO     | __main__:train:200 - ",
    ],
)
def test_what_programs_and_forums_put_in_front(sample: Sample, prefix: str) -> None:
    evidence = read("".join(f"{prefix}{line}\n" for line in sample.lines))
    assert_same(evidence, sample)
    assert "text glued to a line" not in evidence.hazards
    assert evidence.lines_skipped == 0


@BY_NAME
def test_colours_and_spaces(sample: Sample) -> None:
    evidence = read("".join(f"\x1b[32m{line}\x1b[0m  \n\n" for line in sample.lines))
    assert_same(evidence, sample, lambda line: 2 * line - 1)
    assert evidence.hazards["terminal codes"] >= len(sample.lines)


def test_colours_that_lost_their_escape() -> None:
    sample = next(sample for sample in MADE if sample.name == "torchtitan")
    assert_same(read(sample.text.replace("\x1b", "")), sample)


@BY_NAME
@pytest.mark.parametrize("copies", [2, 8])
def test_what_several_processes_print(sample: Sample, copies: int) -> None:
    if sample.format == "autoresearch":
        pytest.skip("all its steps are on one line")
    evidence = read("".join(f"{line}\n" * copies for line in sample.lines))
    assert_same(evidence, sample, lambda line: copies * (line - 1) + 1)
    assert evidence.hazards["repeated lines"] >= (copies - 1) * len(sample.evals)
    assert len(evidence.events) == len(sample.events)


# A line that carriage returns overwrite is not wrapped at its columns.
WRAPPED = [s for s in LINES if s.name != "autoresearch" and s.format != "Hugging Face Trainer"]


@pytest.mark.parametrize("sample", WRAPPED, ids=lambda sample: sample.name)
@pytest.mark.parametrize("width", [40, 53, 80, 100])
def test_hard_wraps_at_any_column(sample: Sample, width: int) -> None:
    if sample.name == "torchtitan" and width < 64:
        pytest.skip("the time in front of its lines fills such a width")
    lines: list[str] = []
    number_of = {}
    for number, coloured in enumerate(sample.lines, 1):
        line = re.sub("\x1b\\[[0-9;]*m", "", coloured)
        number_of[number] = len(lines) + 1
        lines += [line[at : at + width] for at in range(0, max(1, len(line)), width)]
    evidence = read("\n".join(lines) + "\n")
    data = [row | {"line": number_of[int(row["line"])]} for row in sample.train]
    assert evidence.format.name == sample.format
    assert_table(evidence.train, data, [column for column in TRAIN if column != "line"])
    assert_table(evidence.evals, sample.evals, [column for column in EVALS if column != "line"])
    assert evidence.lines_skipped == 0


def test_a_capture_that_lost_the_spaces_at_its_breaks() -> None:
    sample = nanochat()
    lines = []
    for line in sample.lines:
        head, label, tail = line.partition("bf16_mfu:")
        lines += [head + label, tail.lstrip()] if label else [line]
    evidence = read("\n".join(lines) + "\n")
    assert_table(evidence.train, sample.train, [column for column in TRAIN if column != "line"])
    assert evidence.hazards["joined wrapped lines"] == len(sample.train)


def rows_are_true(evidence: LogEvidence, sample: Sample) -> int:
    """Each row that was read is exactly what its line says; returns how many are missing."""
    missing = 0
    for table, rows, columns in (
        (evidence.train, sample.train, TRAIN),
        (evidence.evals, sample.evals, EVALS),
    ):
        truth = {(row["line"], 0 if table is evidence.evals else row["step"]): row for row in rows}
        missing += len(rows) - len(table)
        for at in range(len(table)):
            # An evaluation without a step has that of the training line beside it, which may be gone.
            row = truth[int(table.line[at]), 0 if table is evidence.evals else int(table.step[at])]
            for column in columns:
                if column == "step" and table is evidence.evals:
                    continue
                expected, actual = row.get(column, math.nan), float(getattr(table, column)[at])
                # A clock's difference to the line before is another one when that line is gone.
                free = column == "seconds" and sample.format == "modded-nanogpt"
                assert free or expected == actual or math.isnan(actual), (row, column)
    return missing


@pytest.mark.parametrize("sample", MADE, ids=lambda sample: sample.name)
def test_a_log_cut_at_any_byte_says_nothing_false(sample: Sample) -> None:
    rng = random.Random(sample.name)
    whole = sample.text.encode()
    # Before the first training line nothing may say the step of an evaluation.
    started = int((sample.train or sample.evals)[0]["line"])
    first = len("\n".join(sample.lines[:started]).encode())
    for cut in [
        *range(len(whole) - 12, len(whole)),
        *(rng.randrange(first + 1, len(whole) + 1) for _ in range(12)),
    ]:
        evidence = read(whole[:cut])
        derived = {"seconds"}
        truth = partial(sample, whole[:cut].count(b"\n"))
        for row_table, rows in ((evidence.train, truth.train), (evidence.evals, truth.evals)):
            # The dict of a state file ends some lines after its loss.
            assert len(row_table) >= len(rows) - ("json" in sample.name)
            assert len(row_table) <= len(rows) + (60 if sample.format == "autoresearch" else 1)
        known_steps(evidence, sample)
        for name, fact in {**evidence.header, **evidence.settings}.items():
            if name not in ("planned_steps", "tokens_per_step", "peak_memory_bytes", "world_size", *derived):
                said = {**sample.header, **sample.settings}[name]
                # How many passes were made is what the last line says.
                assert fact.value <= said if name == "epochs" else fact.value == said, name


def partial(sample: Sample, lines: int) -> Sample:
    """What the first so many lines say."""
    cut = Sample(sample.name, sample.format, sample.lines[:lines])
    cut.train = [row for row in sample.train if row["line"] <= lines]
    cut.evals = [row for row in sample.evals if row["line"] <= lines]
    return cut


def known_steps(evidence: LogEvidence, sample: Sample) -> None:
    """Losses and speeds are those of the sample, whatever step an evaluation without one was given."""
    by_line = {row["line"]: row for row in sample.evals}
    for line, val in zip(evidence.evals.line, evidence.evals.val_loss, strict=True):
        expected = by_line[int(line)].get("val_loss", math.nan)
        assert expected == val or (math.isnan(expected) and math.isnan(val))
    train: dict[tuple[float, float], Row] = {(row["line"], row["step"]): row for row in sample.train}
    for at in range(len(evidence.train)):
        row = train[int(evidence.train.line[at]), int(evidence.train.step[at])]
        for column in ("loss", "mfu", "tokens_per_second", "learning_rate", "grad_norm"):
            expected, actual = row.get(column, math.nan), float(getattr(evidence.train, column)[at])
            scaled = sample.format == "torchtitan" and column == "tokens_per_second"
            assert scaled or expected == actual or math.isnan(actual), column


@BY_NAME
def test_a_line_cut_in_the_middle_is_left_out_and_counted(sample: Sample) -> None:
    rng = random.Random(sample.name)
    if sample.format == "autoresearch":
        pytest.skip("its lines end in carriage returns")
    for _ in range(15):
        row = rng.choice(sample.train or sample.evals)
        lines = list(sample.lines)
        at = int(row["line"]) - 1
        lines[at] = lines[at][: rng.randrange(len(lines[at]) // 3, len(lines[at]))]
        evidence = read("\n".join(lines) + "\n")
        # Where evaluations are all that is printed, each is a reading of the clock too.
        assert rows_are_true(evidence, sample) <= (2 if "only" in sample.name else 1)
        assert evidence.lines_skipped <= 1


def test_a_cut_line_is_counted() -> None:
    sample = nanogpt()
    lines = list(sample.lines)
    at = int(sample.train[7]["line"]) - 1
    lines[at] = "A" * 27 + lines[at][:14]
    evidence = read("\n".join(lines) + "\n")
    assert rows_are_true(evidence, sample) == 1
    assert evidence.lines_skipped == 1


@BY_NAME
def test_keystrokes_glued_to_a_line(sample: Sample) -> None:
    rng = random.Random(sample.name)
    if sample.format == "autoresearch":
        pytest.skip("its lines end in carriage returns")
    for _ in range(10):
        row = rng.choice(sample.train or sample.evals)
        lines = list(sample.lines)
        lines[int(row["line"]) - 1] = (
            rng.choice(["B", "AAAAAAAA", "^C", "33", "q7"]) + lines[int(row["line"]) - 1]
        )
        evidence = read("\n".join(lines) + "\n")
        missing = rows_are_true(evidence, sample)
        if sample.name in NUMBER_FIRST:
            assert missing <= 1
            continue
        assert missing == 0
        # The Trainer's bars and dicts share lines: there is no telling what stands in front of a dict.
        if sample.format != "Hugging Face Trainer":
            assert evidence.hazards["text glued to a line"] == 1


def test_digits_glued_to_a_step_that_begins_its_line() -> None:
    sample = next(sample for sample in MADE if sample.name == "llama2.c")
    lines = list(sample.lines)
    at = int(sample.train[9]["line"]) - 1
    lines[at] = "33" + lines[at]
    evidence = read("\n".join(lines) + "\n")
    assert rows_are_true(evidence, sample) == 1
    assert evidence.lines_skipped == 1


def test_two_lines_that_lost_their_line_feed() -> None:
    sample = nanogpt()
    text = sample.text.replace("%\niter 150:", "%iter 150:").replace("\niter 200:", "iter 200:")
    evidence = read(text)
    assert len(evidence.train) == len(sample.train)
    np.testing.assert_array_equal(evidence.train.loss, [row["loss"] for row in sample.train])
    assert len(evidence.evals) == len(sample.evals)


def test_no_break_spaces_of_a_web_page() -> None:
    sample = nanogpt()
    evidence = read(sample.text.replace(": loss ", ":\u00a0loss\u00a0"))
    assert_same(evidence, sample)
    assert evidence.hazards["no-break spaces"] == 2 * len(sample.train)


def test_bytes_of_another_encoding_in_a_sample_of_text() -> None:
    sample = nanogpt()
    evidence = read(sample.text.encode() + "Genäht\n".encode("latin-1"))
    assert_same(evidence, sample)
    assert evidence.hazards["undecodable bytes"] == 1


def test_a_file_of_bars_alone_has_no_line_feed_to_wait_for() -> None:
    line = (
        "\rstep 00005 (1.0%) | loss: 5.000000 | lrm: 0.50 | dt: 4950ms | tok/sec: 1 | mfu: 1.0% | epoch: 1"
        " | remaining: 3s"
    )
    evidence = read(line * 20_000)
    assert evidence.lines_read == 1
    assert len(evidence.train) == 1
    assert evidence.hazards["repeated lines"] == 19_999


def test_a_state_file_on_one_line() -> None:
    sample = trainer_state()
    evidence = read("".join(line.strip() for line in sample.lines))
    assert list(evidence.train.step) == [row["step"] for row in sample.train]
    assert list(evidence.evals.val_loss) == [row["val_loss"] for row in sample.evals]


def test_the_source_before_a_log_is_no_log() -> None:
    sample = modded()
    evidence = read(sample.text)
    assert not evidence.events
    assert evidence.lines_skipped == 0


@pytest.mark.parametrize(
    ("change", "hazard"),
    [
        ({"'": "\u2019", "-": "\u2212"}, "typographic quotes"),
        ({"&": "&amp;", "'": "&#39;", '"': "&quot;", "<": "&lt;", ">": "&gt;"}, "HTML entities"),
    ],
)
def test_signs_that_a_page_or_a_word_processor_changed(change: dict[str, str], hazard: str) -> None:
    text = (
        "{'loss': 3.12, 'grad_norm': 0.81, 'learning_rate': 1e-05, 'epoch': 0.1}\n"
        " 10%|#         | 10/100 [00:10<01:30,  1.00it/s]\n"
    )
    log = read("".join(change.get(sign, sign) for sign in text))
    assert list(log.train.loss) == [3.12]
    assert list(log.train.learning_rate) == [1e-05]
    assert log.hazards[hazard]

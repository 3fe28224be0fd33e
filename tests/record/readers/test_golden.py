"""Every format gives exactly the tables that were written down with its lines."""

import math
from collections.abc import Sequence

import numpy as np
import pytest

from gptwright.facts import Origin
from gptwright.record.evidence import EvalLines, LogEvidence, TrainLines
from gptwright.record.readers import read_log
from tests.record.readers.samples import SAMPLES, Row, Sample

TRAIN = ("step", "line", "loss", "seconds", "tokens_per_second", "mfu", "learning_rate", "grad_norm")
EVALS = ("step", "line", "train_loss", "val_loss", "val_bpb", "train_standard_error", "val_standard_error")
MADE = [make() for make in SAMPLES]


def read(text: str | bytes) -> LogEvidence:
    return read_log(None, data=text if isinstance(text, bytes) else text.encode())


def assert_table(table: TrainLines | EvalLines, rows: Sequence[Row], columns: Sequence[str]) -> None:
    for column in columns:
        expected = [row.get(column, math.nan) for row in rows]
        np.testing.assert_array_equal(getattr(table, column), expected, err_msg=column)


@pytest.mark.parametrize("sample", MADE, ids=lambda sample: sample.name)
def test_the_tables_are_exact(sample: Sample) -> None:
    evidence = read(sample.text)
    assert evidence.format.name == sample.format
    assert_table(evidence.train, sample.train, TRAIN)
    assert_table(evidence.evals, sample.evals, EVALS)
    assert {name: fact.value for name, fact in evidence.header.items()} == sample.header
    assert {name: fact.value for name, fact in evidence.settings.items()} == sample.settings
    assert [str(event.kind) for event in evidence.events] == sample.events
    assert evidence.hazards == sample.hazards
    assert evidence.lines_skipped == 0
    assert evidence.lines_read == len(sample.lines)
    assert set(evidence.train.segment) <= {0}
    assert evidence.path == "-"


@pytest.mark.parametrize("sample", MADE, ids=lambda sample: sample.name)
def test_a_bad_loss_is_told_from_one_that_is_not_there(sample: Sample) -> None:
    evidence = read(sample.text)
    bad = [not math.isfinite(row.get("loss", 0.0)) for row in sample.train]
    np.testing.assert_array_equal(evidence.train.loss_is_bad, bad)
    bad = [not math.isfinite(row.get("val_loss", 0.0)) for row in sample.evals]
    np.testing.assert_array_equal(evidence.evals.loss_is_bad, bad)


@pytest.mark.parametrize("sample", MADE, ids=lambda sample: sample.name)
def test_each_fact_names_its_line(sample: Sample) -> None:
    evidence = read(sample.text)
    for name, fact in {**evidence.header, **evidence.settings}.items():
        assert fact.name == name
        if fact.origin is Origin.DERIVED:
            assert fact.source == "derived"
            continue
        assert fact.origin is Origin.LOGGED
        line = int(fact.source.removeprefix("log:"))
        assert 1 <= line <= len(sample.lines)

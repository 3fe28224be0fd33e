"""Thousands of damaged logs: no crash, nothing slow, and no number that its line does not say.

The same with 200,000 logs is `python -m benchmarks.fuzz_readers`, or this test with GPTWRIGHT_LONG=1.
"""

import pytest

from gptwright.record.readers import read_log
from tests.conftest import LONG
from tests.record.readers.fuzz import fuzz
from tests.record.readers.literal import invented
from tests.record.readers.samples import SAMPLES, Sample

LOGS = 200_000 if LONG else 1_000


@pytest.mark.slow
def test_damaged_logs() -> None:
    result = fuzz(range(LOGS))
    assert result.crashes == []
    assert result.inventions == []
    assert result.slowest_seconds < 1
    # The check must have something to check: most damage leaves most lines readable.
    assert result.rows > 5 * LOGS
    assert result.facts > LOGS // 2
    assert result.refused < LOGS // 10


@pytest.mark.parametrize("sample", [make() for make in SAMPLES], ids=lambda sample: sample.name)
def test_nothing_is_invented_in_whole_logs(sample: Sample) -> None:
    data = sample.text.encode()
    assert invented(read_log(None, data=data), data) == []


def test_the_check_finds_an_invention() -> None:
    data = b"iter 10: loss 4.0000, time 100.00ms, mfu 20.00%\ntokens per iteration will be: 65,536\n"
    evidence = read_log(None, data=data)
    assert invented(evidence, data) == []
    assert invented(evidence, data.replace(b"4.0000", b"4.00001")) == ["line 1: loss 4.0"]
    assert invented(evidence, data.replace(b"100.00", b"1000.00")) == ["line 1: seconds 0.1"]
    assert invented(evidence, data.replace(b"65,536", b"165,536")) == ["line 2: tokens_per_step 65536"]
    assert invented(evidence, data.replace(b"iter 10", b"iter 110")) == ["line 1: step 10"]

"""Thousands of damaged files: no crash, nothing slow, nothing executed or written.

The long form is `python -m benchmarks.fuzz_formats`.
"""

from pathlib import Path

import pytest

from tests.fuzz.formats import FORMATS
from tests.fuzz.fuzz import fuzz

FILES = 2800


@pytest.mark.slow
def test_damaged_files(tmp_path: Path) -> None:
    result = fuzz(range(FILES), tmp_path)
    assert result.crashes == []
    assert result.executed == []
    assert result.slowest_seconds < 2
    assert set(result.by_format.values()) == {FILES // len(FORMATS)}
    # The damage must be damage, and not all of it obvious.
    assert FILES // 3 < result.refused < FILES

"""Errors say what is wrong, why it matters, and what to type."""

import pytest

from gptwright.errors import ConfigError, DataError, GptwrightError, RunFailedError


def test_an_error_shows_problem_reason_and_remedy() -> None:
    error = DataError("x is 3", why="it must be 4", fix="--x=4")
    assert str(error) == "x is 3\n  why: it must be 4\n  fix: --x=4"
    assert str(DataError("x is 3")) == "x is 3"


def test_several_problems_become_one_flat_list() -> None:
    one, two, three = (ConfigError(name) for name in "abc")
    assert ConfigError.of([one]) is one
    nested = ConfigError.of([ConfigError.of([one, two]), three])
    assert str(nested) == "3 settings cannot be used:\n- a\n- b\n- c"


@pytest.mark.parametrize(("kind", "status"), [(GptwrightError, 2), (ConfigError, 2), (RunFailedError, 1)])
def test_exit_status_tells_bad_input_from_bad_answer(kind: type[GptwrightError], status: int) -> None:
    assert kind("x").exit_status == status

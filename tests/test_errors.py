"""Errors say what is wrong, why it matters, and what to type."""

import os
import re
from pathlib import Path

import pytest

import gptwright
from gptwright.errors import ConfigError, DataError, GptwrightError, RunFailedError, typed

# A command in a message, up to the first value that is put into it.
COMMAND = re.compile(
    r"gptwright (?:resume|diagnose|sample|eval|prepare|inspect|report) (?!·)[^\"{]*\{([^}]*)\}"
)
# Fields that are quoted where they are filled in, and a repository's name.
NO_PATHS = {"out", "source"}


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


@pytest.mark.skipif(os.name == "nt", reason="quotes of a POSIX shell")
def test_a_path_in_a_command_is_one_word() -> None:
    assert [typed(path) for path in ("out/run", Path("a b"), "it's")] == ["out/run", "'a b'", "'it'\"'\"'s'"]


def test_every_command_that_a_message_gives_quotes_its_path() -> None:
    found = [
        (path.name, value.removeprefix("escape("))
        for path in Path(gptwright.__file__).parent.rglob("*.py")
        for value in COMMAND.findall(path.read_text("utf-8"))
        if value not in NO_PATHS
    ]
    assert len(found) > 8
    assert [(name, value) for name, value in found if not value.startswith("typed(")] == []

"""`diagnose` and `compare` as commands: what they take, what they answer, and how they refuse."""

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Answer

Cli = Callable[..., Answer]

LOG = """\
tokens per iteration will be: 65,536
number of parameters: 29.94M
step 0: train loss 10.8712, val loss 10.8699
iter 0: loss 10.8701, time 20345.67ms, mfu -100.00%
iter 10: loss 9.4321, time 204.40ms, mfu 21.37%
iter 20: loss 8.4321, time 204.40ms, mfu 21.37%
iter 30: loss nan, time 204.40ms, mfu 21.37%
iter 40: loss nan, time 204.40ms, mfu 21.37%
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log.txt"
    path.write_text(LOG)
    return path


def test_a_log_file_alone_is_a_run(gptwright: Cli, log: Path) -> None:
    answer = gptwright("diagnose", str(log))
    assert answer.status == 0
    assert "This run is broken: non-finite-loss." in answer.out
    assert "(log:7)" in answer.out
    assert "Does it generalize?" not in answer.out


def test_standard_input_is_a_run(gptwright: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(LOG.encode())))
    document = json.loads(gptwright("diagnose", "-", "--json").out)
    assert document["run"]["tokens_per_step"] == 65_536


def test_facts_are_options(gptwright: Cli, log: Path) -> None:
    document = json.loads(gptwright("diagnose", str(log), "--device", "RTX 3090", "--json").out)
    assert document["run"]["peak_tflops"] == pytest.approx(71.2, rel=0.01)
    without = json.loads(gptwright("diagnose", str(log), "--json").out)
    assert without["run"]["peak_tflops"] is None
    assert any("device" in item["missing"] for item in without["unknown"])


@pytest.mark.parametrize(("severity", "status"), [("error", 1), ("warning", 1), ("info", 1)])
def test_fail_on_a_severity(gptwright: Cli, log: Path, severity: str, status: int) -> None:
    assert gptwright("diagnose", str(log), "--fail-on", severity).status == status


def test_fail_on_what_is_not_there(gptwright: Cli, log: Path) -> None:
    log.write_text(LOG.replace("loss nan", "loss 8.1234"))
    assert gptwright("diagnose", str(log), "--fail-on", "error").status == 0


def test_a_finding_is_explained_with_its_source(gptwright: Cli) -> None:
    answer = gptwright("diagnose", "--explain", "val-below-train")
    assert answer.status == 0
    assert "eval mode" in " ".join(answer.out.split())
    assert "Source:" in answer.out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("diagnose",), "diagnose needs a run"),
        (("diagnose", "nowhere"), "nowhere"),
        (("diagnose", "--explain", "nothing"), "no finding is called 'nothing'"),
        (("compare", "one"), "compare needs two runs or more"),
    ],
)
def test_mistakes_are_answered_with_what_to_do(gptwright: Cli, arguments: tuple[str, ...], said: str) -> None:
    answer = gptwright(*arguments)
    assert answer.status == 2
    assert said in answer.err
    assert "fix:" in answer.err


def test_a_file_that_is_no_log_is_refused(gptwright: Cli, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("dear diary, today I trained a model\n")
    answer = gptwright("diagnose", str(tmp_path / "notes.txt"))
    assert answer.status == 2
    assert "nanoGPT" in answer.err


def test_several_runs_are_one_table(gptwright: Cli, tmp_path: Path) -> None:
    for number, loss in enumerate((3.5, 3.4, 3.3)):
        folder = tmp_path / f"run{number}"
        folder.mkdir()
        lines = [
            f"step {step}: train loss {loss + 500 / step:.4f}, val loss {loss + 500 / step:.4f}"
            for step in range(250, 4001, 250)
        ]
        (folder / "log.txt").write_text("number of parameters: 29.94M\n" + "\n".join(lines) + "\n")
    names = [str(tmp_path / f"run{number}") for number in range(3)]
    document = json.loads(gptwright("compare", *names, "--json").out)
    assert [run["run"] for run in document["runs"]] == names
    assert len(document["pairs"]) == 2
    assert all(pair["verdict"] == "b-better" for pair in document["pairs"])
    assert "best val loss" in gptwright("compare", *names).out

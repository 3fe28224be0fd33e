"""Errors that end a run, in the frameworks' own words."""

from pathlib import Path

import pytest

from gptwright.diagnose.engine import diagnose
from gptwright.diagnose.reading import read_run
from gptwright.findings import Finding
from gptwright.record.open_run import open_run

HEAD = "tokens per iteration will be: 16,384\nnumber of parameters: 10.65M\n"
LINES = "".join(f"iter {step}: loss 2.{99 - step}, time 30.00ms, mfu 10.00%\n" for step in range(0, 60, 10))
TRACEBACK = (
    'Traceback (most recent call last):\n  File "train.py", line 212, in <module>\n    model.to(device)\n'
)
NO_CUDA = "AssertionError: Torch not compiled with CUDA enabled"


def found(folder: Path, log: str) -> list[Finding]:
    (folder / "log.txt").write_text(log)
    findings = diagnose(read_run(open_run(str(folder)))).findings
    return [each for each in findings if each.id == "known-error"]


@pytest.mark.parametrize(
    ("error", "settings", "word"),
    [
        (NO_CUDA, {"device": "cpu", "compile": False}, "without CUDA"),
        ("RuntimeError: Found no NVIDIA driver on your system.", {"device": "cpu"}, "no NVIDIA GPU"),
        (
            "RuntimeError: Found GTX 1080 which is too old to be supported by the triton GPU compiler",
            {"compile": False},
            "7.0",
        ),
        ("RuntimeError: Windows not yet supported for torch.compile", {"compile": False}, "does not run"),
        ("RuntimeError: Dataset scripts are no longer supported, but found x.py", {}, "4.0"),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'data/x/train.bin'", {}, "prepare.py"),
        ("RuntimeError: CUDA error: device-side assert triggered", {}, "vocab_size"),
        ("IndexError: index out of range in self", {}, "vocab_size"),
        ("Killed", {}, "main memory"),
    ],
)
def test_what_ended_the_run_is_explained(
    tmp_path: Path, error: str, settings: dict[str, object], word: str
) -> None:
    (finding,) = found(tmp_path, HEAD + (TRACEBACK if ":" in error else "") + error + "\n")
    assert word in finding.message
    assert finding.actions[0].settings == settings
    assert finding.evidence[0].source.startswith("log:")


def test_an_error_that_training_went_on_after_is_left_alone(tmp_path: Path) -> None:
    assert found(tmp_path, f"{HEAD}{TRACEBACK}{NO_CUDA}\n{HEAD}{LINES}") == []
    assert found(tmp_path, f"{HEAD}{LINES}{TRACEBACK}ValueError: something else\n") == []


def test_one_error_of_several_processes_is_one(tmp_path: Path) -> None:
    ranks = "".join(f"[rank{rank}]: {NO_CUDA}\n" for rank in range(4))
    assert len(found(tmp_path, HEAD + ranks)) == 1


def test_an_evaluation_alone_has_no_plan(tmp_path: Path) -> None:
    echo = "Overriding config with config/eval.py:\neval_only = True\nbatch_size = 8\ninit_from = 'gpt2'\n"
    (tmp_path / "log.txt").write_text(
        f"{echo}tokens per iteration will be: 327,680\nnumber of parameters: 123.65M\n"
        "step 0: train loss 3.1079, val loss 3.1133\n"
    )
    assert not diagnose(read_run(open_run(str(tmp_path)))).findings

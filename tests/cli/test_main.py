"""The command starts in a blink without torch, and answers mistakes with one message."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gptwright.cli.main import VERBS
from gptwright.config.load import preset_names
from gptwright.hardware.cpu import has_bfloat16
from gptwright.hardware.kernels import missing_for_kernels
from tests.conftest import Answer

Command = Callable[..., Answer]

WITHOUT_TORCH = """
import sys
sys.modules['torch'] = None
from gptwright.cli.main import main
main(sys.argv[1:])
"""


def without_torch(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, *arguments], capture_output=True, text=True, check=False
    )


# What takes longer to import than a plan may take to answer, or a good part of that.
SLOW_TO_IMPORT = {"torch", "numpy", "scipy", "pydantic", "importlib.metadata", "asyncio", "multiprocessing"}
QUICK = """
import sys
from gptwright.cli.main import run
print(run(sys.argv[1:]), *sys.modules, file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("arguments", "besides"),
    [
        (("plan", "gpt2-124m", "--device", "RTX 4070", "--json"), {"rich"}),
        (("plan", "gpt2-124m", "--device", "RTX 4070"), {"rich.progress"}),
        *[((verb, "--help"), {"rich"}) for verb in VERBS],
    ],
)
def test_what_is_to_be_quick_imports_nothing_slow(arguments: tuple[str, ...], besides: set[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", QUICK, *arguments], capture_output=True, text=True, check=True
    )
    status, *modules = done.stderr.split()
    assert status == "0"
    assert not (SLOW_TO_IMPORT | besides) & set(modules)


@pytest.mark.parametrize("verb", [(), ("train",)])
def test_help_needs_no_torch(verb: tuple[str, ...]) -> None:
    """Each verb's is seen above to import none."""
    done = without_torch(*verb, "--help")
    assert done.returncode == 0, done.stderr
    assert "Usage: gptwright" in done.stdout
    if not verb:
        assert all(f"{name} " in done.stdout for name in VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_json(verb: str, gptwright: Command) -> None:
    assert "--json" in gptwright(verb, "--help").out


def test_help_of_train_lists_every_setting_with_its_default() -> None:
    text = without_torch("train", "--help").stdout
    assert "--n_layer VALUE" in text
    assert "number of blocks  [default: 12]" in text
    assert "--lr_schedule cosine|linear|wsd" in text
    assert f"Presets: {', '.join(preset_names())}." in " ".join(text.split())


def test_preparing_characters_needs_no_torch(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("some text\n" * 400)
    done = without_torch(
        "prepare", str(tmp_path / "a.txt"), "--tokenizer", "char", "--out", str(tmp_path / "d")
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "d" / "manifest.json").is_file()


def test_planning_needs_no_torch() -> None:
    done = without_torch("plan", "gpt2-124m", "--device", "RTX 4070", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["parameters"]["nanogpt"] == 123_587_328


def test_planning_for_this_cpu_needs_no_torch() -> None:
    done = without_torch("plan", "shakespeare-char-cpu", "--device=cpu", "--json")
    assert done.returncode == 0, done.stderr
    throughput = json.loads(done.stdout)["throughput"]
    kernels = missing_for_kernels() is None
    dtype = "bfloat16" if kernels and has_bfloat16() else "float32"
    assert (throughput["dtype"], throughput["kernels"]) == (dtype, kernels)


def test_diagnosing_comparing_and_reporting_need_no_torch(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        log = "number of parameters: 40.56M\nstep 0: train loss 10.8684, val loss 10.8727\n"
        (tmp_path / name / "log.txt").write_text(
            log + "iter 0: loss 10.8720, time 32025.45ms, mfu -100.00%\n"
        )
    diagnosed = without_torch("diagnose", str(tmp_path / "a"), "--json")
    assert diagnosed.returncode == 0, diagnosed.stderr
    assert json.loads(diagnosed.stdout)["run"]["parameters"] == 40_560_000
    compared = without_torch("compare", str(tmp_path / "a"), str(tmp_path / "b"), "--json")
    assert json.loads(compared.stdout)["schema"] == "gptwright.comparison/1"
    reported = without_torch("report", str(tmp_path / "a"), "--json")
    assert reported.returncode == 0, reported.stderr
    page = tmp_path / "a" / "report.html"
    document = json.loads(reported.stdout)
    assert document == {"schema": "gptwright.report/1", "report": str(page), "plots": []}
    assert page.is_file()


@pytest.mark.parametrize("arguments", [("train",), ("env",), ("sample", "somewhere")])
def test_what_needs_torch_says_how_to_get_it(arguments: tuple[str, ...]) -> None:
    done = without_torch(*arguments)
    assert done.returncode == 2
    assert "not installed" in done.stderr
    assert "pip install 'gptwright[train]'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("arguments", [("resume", "run"), ("import", "gpt2", "--out", "run")])
def test_out_dir_is_refused_where_something_else_says_the_folder(
    arguments: tuple[str, ...], gptwright: Command
) -> None:
    answer = gptwright(*arguments, "--out_dir=elsewhere")
    assert answer.status == 2
    assert "--out_dir=elsewhere has no effect" in answer.err


def test_a_run_that_has_its_settings_is_not_told_the_defaults(gptwright: Command) -> None:
    assert "[default: 600000]" in gptwright("train", "--help").out
    for verb in ("resume", "import"):
        text = gptwright(verb, "--help").out
        assert "--max_iters VALUE" in text
        assert "[default: 600000]" not in text
        assert "--out_dir VALUE" not in text


@pytest.mark.parametrize(
    "arguments",
    [
        ("report", "run", "--out", "run/log.txt/page.html"),
        ("report", "run", "--plots", "run/log.txt"),
        ("plan", "gpt2-124m", "--device", "RTX 4070", "--save", "run"),
    ],
)
def test_a_place_that_cannot_be_written_is_one_message(
    arguments: tuple[str, ...], gptwright: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("run").mkdir()
    Path("run/log.txt").write_text(
        "step 0: train loss 10.8684, val loss 10.8727\niter 0: loss 10.8720, time 9ms\n"
    )
    answer = gptwright(*arguments)
    assert answer.status == 2
    assert f"error: {arguments[-1]} cannot be written: " in answer.err


def test_an_unknown_verb_is_answered_with_the_nearest(gptwright: Command) -> None:
    answer = gptwright("trian")
    assert answer.status == 2
    assert "there is no verb 'trian'; did you mean 'train'?" in answer.err
    assert "verbs are demo, env" in gptwright("xyzzy").err


def test_the_version_is_the_packages(gptwright: Command) -> None:
    assert gptwright("--version").out.strip() == "gptwright, version 0.1.0"

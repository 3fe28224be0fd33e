"""The hook gets the facts, has a limited time, and cannot hurt the run."""

import contextlib
import json
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from gptwright.config.load import load_config
from gptwright.errors import ConfigError, RunFailedError
from gptwright.train.hook import Hook
from gptwright.train.run import prepare_new, train_prepared
from tests.conftest import Answer, as_arguments
from tests.processes import have_ended, wait_until
from tests.train.conftest import Watcher

KEEP = "import sys; open(sys.argv[1], 'a').write(sys.stdin.read() + chr(10))"


def told(file: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()]


def test_a_finished_run_tells_the_hook(tmp_path: Path, tiny: dict[str, str]) -> None:
    out, heard = tmp_path / "run", tmp_path / "heard of it"
    prepared = prepare_new(load_config([], tiny | {"out_dir": str(out)}))
    train_prepared(prepared, Watcher(), hook=f"'{sys.executable}' -c \"{KEEP}\" '{heard}'")
    facts = told(heard)
    assert [fact["event"] for fact in facts] == ["finished"]
    assert facts[0]["schema"] == "gptwright.hook/1"
    assert facts[0]["run"] == str(out)
    assert facts[0]["step"] == 24
    assert isinstance(facts[0]["best_val_loss"], float)
    assert "finished: exit status 0" in (out / "hook.log").read_text("utf-8")


def test_a_failed_run_tells_what_and_why(tmp_path: Path, tiny: dict[str, str]) -> None:
    out, heard = tmp_path / "run", tmp_path / "heard"
    options = tiny | {"learning_rate": "1e30", "grad_clip": "0", "warmup_iters": "0", "nonfinite": "stop"}
    prepared = prepare_new(load_config([], options | {"out_dir": str(out)}))
    with pytest.raises(RunFailedError):
        train_prepared(prepared, Watcher(), hook=f"'{sys.executable}' -c \"{KEEP}\" '{heard}'")
    facts = told(heard)
    assert [fact["event"] for fact in facts] == ["failed"]
    assert "at step" in str(facts[0]["problem"])
    assert facts[0]["fix"]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("no-such-program-anywhere", "could not be run"),
        (f"'{sys.executable}' -c 'import sys; print(5); sys.exit(3)'", "exit status 3; it said '5"),
        (f"'{sys.executable}' -c 'import os; os.close(0)'", "exit status 0"),
    ],
)
def test_whatever_it_does_the_run_goes_on(
    tmp_path: Path, tiny: dict[str, str], command: str, said: str
) -> None:
    out = tmp_path / "run"
    prepared = prepare_new(load_config([], tiny | {"max_iters": "2", "out_dir": str(out)}))
    assert train_prepared(prepared, Watcher(), hook=command).ending == "finished"
    assert said in (out / "hook.log").read_text("utf-8")


@pytest.mark.skipif(shutil.which("sh") is None, reason="needs a shell")
def test_a_hook_that_hangs_is_killed_with_its_children(tmp_path: Path) -> None:
    pids = tmp_path / "pid"
    # A shell has its child at once, however busy the machine is; the time begins with the hook.
    hook = Hook(f"sh -c 'sleep 60 & echo $! > {pids}; wait'", run=tmp_path, seconds=1.0)
    begin = time.monotonic()
    hook.tell("finished", {})
    # It did not wait for the hook; on a busy machine the second may be over all the same.
    assert not (tmp_path / "hook.log").exists() or time.monotonic() - begin > 1
    hook.wait()
    assert time.monotonic() - begin < 30  # of the 60 that it would have slept
    assert "killed after 1 s" in (tmp_path / "hook.log").read_text("utf-8")
    with contextlib.suppress(psutil.NoSuchProcess):
        child = psutil.Process(int(pids.read_text()))
        wait_until(lambda: have_ended([child]), 30)  # of the 60 that it would have slept


def test_no_shell_sees_the_command(tmp_path: Path) -> None:
    hook = Hook(f"echo $(touch {tmp_path}/made) > {tmp_path}/written", run=tmp_path)
    hook.tell("finished", {})
    hook.wait()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hook.log"]


def test_a_command_that_is_none_is_refused_before_the_training(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No closing quotation"):
        Hook("notify 'me", run=tmp_path)


def test_no_config_can_name_a_hook(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text('hook = "touch made"\n')
    with pytest.raises(ConfigError, match="unknown setting hook"):
        load_config([str(config)])


@pytest.mark.parametrize("by_option", [True, False])
def test_the_command_line_takes_it_as_an_option_or_from_the_environment(
    tmp_path: Path,
    tiny: dict[str, str],
    gptwright: Callable[..., Answer],
    monkeypatch: pytest.MonkeyPatch,
    by_option: bool,
) -> None:
    heard = tmp_path / "heard"
    hook = f"'{sys.executable}' -c \"{KEEP}\" '{heard}'"
    if not by_option:
        monkeypatch.setenv("GPTWRIGHT_HOOK", hook)
    options = as_arguments(tiny | {"max_iters": "3", "out_dir": str(tmp_path / "run")})
    answer = gptwright("train", *options, *([f"--hook={hook}"] if by_option else []))
    assert answer.status == 0, answer.err
    assert [fact["event"] for fact in told(heard)] == ["finished"]
    assert "hook" not in (tmp_path / "run" / "config.toml").read_text("utf-8")

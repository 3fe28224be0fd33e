"""Whatever is handed over as a run is opened as one, or it is said what is missing."""

import io
import json
import re
import shutil
import sys
from pathlib import Path

import pytest

from gptwright.errors import ConfigError, RunError
from gptwright.record.open_run import open_run
from tests.record.readers.samples import SAMPLES, nanogpt, trainer_state

LOG = nanogpt().text


def folder(tmp_path: Path, **files: str) -> Path:
    """A folder with these files; `__` in a name stands for a dot, `___` for a slash."""
    for name, text in files.items():
        path = tmp_path / "run" / name.replace("___", "/").replace("__", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path / "run"


def test_a_folder_with_log_config_and_facts(tmp_path: Path) -> None:
    run = open_run(
        str(
            folder(
                tmp_path,
                log__txt=LOG,
                config__py="batch_size = 8\n",
                facts__toml='device = "RTX 4070"\ntrain_tokens = 9_035_582_198\nnote = "stopped by hand"\n',
            )
        )
    )
    assert run.path == str(tmp_path / "run")
    assert run.log is not None
    assert run.log.path == str(tmp_path / "run" / "log.txt")
    assert run.config is not None
    assert run.config.settings["batch_size"].value == 8
    assert {name: fact.value for name, fact in run.stated.items()} == {
        "device": "RTX 4070",
        "train_tokens": 9_035_582_198,
        "note": "stopped by hand",
    }
    assert run.stated["train_tokens"].source == "fact:train_tokens"
    assert run.stated["train_tokens"].unit == "tokens"


def test_options_win_over_the_facts_file(tmp_path: Path) -> None:
    path = folder(tmp_path, log__txt=LOG, facts__toml='device = "RTX 4070"\nvocab_size = 65\n')
    run = open_run(str(path), {"device": "A100", "vocab_size": None, "train_tokens": "1,003,854"})
    assert {name: fact.value for name, fact in run.stated.items()} == {
        "device": "A100",
        "vocab_size": 65,
        "train_tokens": 1_003_854,
    }


def test_a_log_file_by_itself(tmp_path: Path) -> None:
    path = folder(tmp_path, whatever__log=LOG, config__py="batch_size = 8\n") / "whatever.log"
    run = open_run(str(path))
    assert run.log is not None
    assert run.config is None
    assert run.stated == {}


def test_a_config_by_itself(tmp_path: Path) -> None:
    run = open_run(str(folder(tmp_path, config__py="batch_size = 8\n") / "config.py"), {"device": "A100"})
    assert run.log is None
    assert run.config is not None
    assert run.stated["device"].value == "A100"


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(LOG.encode())))
    run = open_run("-", {"vocab_size": 50304})
    assert run.log is not None
    assert run.log.path == run.path == "-"
    assert run.stated["vocab_size"].value == 50304


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({"train__log": LOG}, "train.log"),
        ({"out__txt": LOG, "requirements__txt": "torch\n"}, "out.txt"),
        ({"out__log": LOG, "notes__txt": "nothing of note\n"}, "out.log"),
        ({"log__txt": LOG, "other__log": LOG}, "log.txt"),
        ({"trainer_state__json": trainer_state().text}, "trainer_state.json"),
        (
            {
                "checkpoint-500___trainer_state__json": trainer_state().text,
                "checkpoint-1000___trainer_state__json": trainer_state().text,
            },
            "checkpoint-1000/trainer_state.json",
        ),
    ],
)
def test_the_log_of_a_folder_is_found(tmp_path: Path, files: dict[str, str], found: str) -> None:
    path = folder(tmp_path, **files)
    run = open_run(str(path))
    assert run.log is not None
    assert run.log.path == str(path / found)


def test_a_folder_with_a_config_alone_is_a_plan(tmp_path: Path) -> None:
    run = open_run(str(folder(tmp_path, config__toml="batch_size = 8\n")))
    assert run.log is None
    assert run.config is not None


def test_what_cannot_be_opened_is_said(tmp_path: Path) -> None:
    with pytest.raises(
        RunError, match=r"gone does not exist\n  fix: give a run folder, a folder with a log\.txt"
    ):
        open_run(str(tmp_path / "gone"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(RunError, match=r"empty holds no log\n  why: a log is log\.txt, trainer_state\.json"):
        open_run(str(tmp_path / "empty"))
    two = folder(tmp_path, a__log=LOG, b__log=LOG)
    with pytest.raises(RunError, match=r"run holds 2 logs that can be read: a\.log, b\.log"):
        open_run(str(two))


def test_a_folder_of_runs_names_them(tmp_path: Path) -> None:
    (tmp_path / "corpus.txt").write_text("To be, or not to be\n")
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "log.txt").write_text(LOG)
    runs = [re.escape(str(tmp_path / name)) for name in ("first", "second")]
    with pytest.raises(
        RunError, match=f"holds no log\n.*\n  fix: give one of the runs in it: {', '.join(runs)}"
    ):
        open_run(str(tmp_path))


def test_two_configs_are_refused(tmp_path: Path) -> None:
    path = folder(tmp_path, log__txt=LOG, config__py="n_layer = 6\n", config__toml="n_layer = 12\n")
    with pytest.raises(RunError, match=r"holds config\.py and config\.toml\n  why: they may differ"):
        open_run(str(path))


def test_a_damaged_config_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not valid TOML"):
        open_run(str(folder(tmp_path, log__txt=LOG, config__toml="n_layer 6\n")))


@pytest.mark.parametrize(
    ("facts", "problem"),
    [
        (
            'devise = "A100"\n',
            r"states 'devise', which is no fact that is known here\n  fix: did you mean device\?",
        ),
        ("zzzz = 1\n", r"fix: facts are device, device_count"),
        ('train_tokens = "many"\n', r"states train_tokens = 'many', which is not a whole number above 0"),
        ("train_tokens = 1.5\n", r"not a whole number above 0\n  fix: write train_tokens = 9035582198"),
        ("vocab_size = true\n", r"states vocab_size = True, which is not a whole number"),
        ("vocab_size = 0\n", r"states vocab_size = 0, which is not a whole number above 0"),
        ("device = 4070\n", r"states device = 4070, which is not text\n  fix: write device = \"RTX 4070\""),
        ('device = " "\n', r"states device = ' ', which is not text"),
        ("device = \n", r"facts\.toml cannot be read: .*\n  fix: it is TOML"),
    ],
)
def test_facts_are_checked(tmp_path: Path, facts: str, problem: str) -> None:
    with pytest.raises(RunError, match=problem):
        open_run(str(folder(tmp_path, log__txt=LOG, facts__toml=facts)))


def test_options_are_checked_too(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="option states 'tokens'"):
        open_run(str(folder(tmp_path, log__txt=LOG)), {"tokens": 1})


def test_a_whole_number_may_be_written_as_a_fraction(tmp_path: Path) -> None:
    run = open_run(str(folder(tmp_path, log__txt=LOG, facts__toml="train_tokens = 9.9e9\n")))
    assert run.stated["train_tokens"].value == 9_900_000_000


def test_a_run_folder_of_ours(tmp_path: Path) -> None:
    metrics = next(make() for make in SAMPLES if make().name == "our metrics.jsonl")
    record = {
        "machine": {"device": "AMD EPYC", "torch": "2.13.0+cpu"},
        "dataset": {"name": "shakespeare_char", "tokens": {"train": 998_691, "val": 116_703}},
    }
    path = folder(
        tmp_path,
        metrics__jsonl=metrics.text,
        log__txt=LOG,
        config__toml="batch_size = 12\n",
        run__json=json.dumps(record),
    )
    run = open_run(str(path), {"device": "laptop CPU"})
    assert run.log is not None
    assert run.log.path == str(path / "metrics.jsonl")
    assert {name: fact.value for name, fact in run.stated.items()} == {
        "device": "laptop CPU",
        "torch": "2.13.0+cpu",
        "dataset": "shakespeare_char",
        "train_tokens": 998_691,
        "val_tokens": 116_703,
    }
    assert run.stated["val_tokens"].reason == "run.json"


def test_a_real_run_of_ours(dataset: Path, tmp_path: Path) -> None:
    from gptwright.cli.main import run as command
    from tests.conftest import TINY, as_arguments

    out = tmp_path / "out"
    assert command(["train", *as_arguments(TINY | {"dataset": str(dataset), "out_dir": str(out)})]) == 0
    opened = open_run(str(out))
    assert opened.log is not None
    assert opened.log.format.name == "gptwright"
    assert opened.log.lines_skipped == 0
    assert list(opened.log.evals.step) == [0, 8, 16, 24]
    assert list(opened.log.train.step) == list(range(24))
    assert opened.stated.keys() >= {"device", "train_tokens", "val_tokens"}
    assert opened.config is not None
    assert opened.config.settings["n_layer"].value == 2
    # log.txt is a view of the same record, rounded as it prints.
    (out / "metrics.jsonl").unlink()
    shutil.copy(out / "log.txt", tmp_path / "log.txt")
    viewed = open_run(str(tmp_path / "log.txt")).log
    assert viewed is not None
    assert viewed.format.name == "gptwright"
    assert list(viewed.evals.val_loss) == [round(loss, 4) for loss in opened.log.evals.val_loss]

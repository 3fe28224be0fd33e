"""The README's own commands, as they are printed there, cut short."""

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from gptwright.cli.main import VERBS
from tests.conftest import Answer

README = Path(__file__).resolve().parents[1] / "README.md"
SHORTER = {
    "train": ["--max_iters=12", "--lr_decay_iters=12", "--warmup_iters=2", "--eval_iters=2", "--n_embd=32"],
    "resume": ["--max_iters=20", "--lr_decay_iters=20", "--eval_iters=2"],
    "sample": ["--device=cpu"],
}


def commands_under(heading: str) -> list[list[str]]:
    """The commands of the first code block under a heading."""
    block = re.search(rf"^## {heading}$.*?^```\n(.*?)^```$", README.read_text("utf-8"), re.M | re.S)
    assert block is not None
    return [shlex.split(line) for line in block[1].replace("\\\n", "").splitlines() if line]


def test_the_five_lines_for_your_own_text_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gptwright: Callable[..., Answer]
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "my-texts"
    folder.mkdir()
    rng = np.random.default_rng(5)
    for number in range(6):
        words = rng.choice(["Once", "upon", "a", "time", "there", "was"], size=3000)
        (folder / f"{number}.md").write_text(" ".join(words) + "\n", encoding="utf-8")
    lines = commands_under("Your own text")
    assert len(lines) == 5
    for program, verb, *arguments in lines:
        assert program == "gptwright"
        shorter = [] if "--help" in arguments else SHORTER.get(verb, [])
        answer = gptwright(verb, *arguments, *shorter)
        assert answer.status == 0, (verb, answer.err)
    assert (tmp_path / "out-mine" / "checkpoints" / "step-00000020").is_dir()


def test_the_exact_accumulation_is_what_the_readme_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gptwright: Callable[..., Answer]
) -> None:
    monkeypatch.chdir(tmp_path)
    narrow = "n_layer = 12\nn_head = 12\nn_embd = 384\nblock_size = 1024\nbatch_size = 16\n"
    (tmp_path / "config.py").write_text(narrow + "gradient_accumulation_steps = 32\ncompile = True\n")
    section = README.read_text("utf-8").split("## Before a run: `plan`")[1].split("\n## ")[0]
    command, answer = re.findall(r"^```\n(.*?)^```$", section, re.M | re.S)[:2]
    program, verb, *arguments = shlex.split(command)
    assert (program, verb) == ("gptwright", "plan")
    shown = " ".join(gptwright(verb, *arguments).out.split())
    for line in answer.splitlines():
        name, value, _, reason = re.split(r"\s{2,}", line)
        assert f"{name} {value} derived {reason}" in shown


def test_the_other_plans_of_the_readme_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gptwright: Callable[..., Answer]
) -> None:
    monkeypatch.chdir(tmp_path)
    section = README.read_text("utf-8").split("## Before a run: `plan`")[1].split("\n## ")[0]
    commands = re.findall(r"^```\n(.*?)^```$", section, re.M | re.S)[2].splitlines()
    for _, verb, *arguments in (shlex.split(line) for line in commands):
        assert gptwright(verb, *arguments).status == 0
    assert (tmp_path / "best.toml").is_file()


def test_the_table_of_commands_has_every_verb_and_no_other() -> None:
    table = re.findall(r"^\| `gptwright (\w+)", README.read_text("utf-8"), re.M)
    assert table == list(VERBS)

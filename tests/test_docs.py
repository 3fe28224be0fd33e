"""The commands of the docs, as they are printed there, on generated data and with small models."""

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cli.test_interop import FINETUNE, TEXT
from tests.conftest import Answer, as_arguments
from tests.interop.test_gpt2_folder import openai_like

PAGE = Path(__file__).resolve().parents[1] / "docs" / "data.md"
SMALLER = [
    "--n_layer=1", "--n_head=2", "--n_embd=16", "--block_size=32", "--tokens_per_step=256", "--eval_iters=1",
    "--max_iters=2", "--lr_decay_iters=2", "--warmup_iters=1", "--device=cpu", "--compile=False",
]  # fmt: skip


def fineweb_edu(folder: Path) -> None:
    """Records with FineWeb-Edu's columns."""
    rng = np.random.default_rng(2)
    words = np.array(
        ["plants", "turn", "light", "into", "sugar", "and", "water", "rises", "through", "roots"]
    )
    texts = [" ".join(rng.choice(words, size=120)) for _ in range(900)]
    columns = {
        "text": texts,
        "id": [f"<urn:uuid:{number}>" for number in range(900)],
        "language_score": rng.uniform(0.65, 1, 900),
        "score": rng.uniform(2.5, 5, 900),
        "int_score": rng.integers(3, 6, 900),
    }
    folder.mkdir(parents=True)
    pq.write_table(pa.table(columns), folder / "000_00000.parquet", row_group_size=100)


def test_the_way_from_an_empty_disk_to_the_first_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gptwright: Callable[..., Answer]
) -> None:
    monkeypatch.chdir(tmp_path)
    fineweb_edu(tmp_path / "downloaded")
    block = re.search(r"^```\n(.*?)^```$", PAGE.read_text("utf-8"), re.M | re.S)
    assert block is not None
    pip, *lines = [shlex.split(line) for line in block[1].splitlines()]
    assert pip == ["pip", "install", "gptwright[train,data]"]
    assert [line[1] for line in lines] == ["prepare", "inspect", "train"]
    for program, verb, *arguments in lines:
        assert program == "gptwright"
        there = ["downloaded" if word.startswith("hf:") else word for word in arguments]
        answer = gptwright(verb, *there, *(SMALLER if verb == "train" else []))
        assert answer.status == 0, (verb, answer.err)
        if verb == "inspect":
            assert "passes over train" in answer.out
            assert "verified" in answer.out
    assert (tmp_path / "out-124m" / "checkpoints" / "step-00000002").is_dir()


def blocks_of(page: str, language: str = "") -> list[str]:
    """The code blocks of a page of docs."""
    text = (PAGE.parent / page).read_text("utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.M | re.S)


def test_the_commands_of_interop(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    dataset: Path,
    tiny: dict[str, str],
    gptwright: Callable[..., Answer],
) -> None:
    """On a checkpoint of nanoGPT's layout and a folder of OpenAI's, both made here."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "mine").symlink_to(dataset)
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "finetune_shakespeare.py").write_text(FINETUNE)
    (tmp_path / "text.txt").write_text(TEXT)
    (tmp_path / "some.txt").write_text("to be or not")
    assert gptwright("prepare", "text.txt", "--tokenizer", "gpt2", "--out", "data/shakespeare").status == 0
    openai_like(tmp_path / "my-gpt2")
    assert gptwright("train", *as_arguments(tiny | {"out_dir": "first", "max_iters": "6"})).status == 0
    assert gptwright("export", "first", "--format", "nanogpt", "--out", "nanoGPT/out").status == 0
    for line in "".join(blocks_of("interop.md")).splitlines():
        program, verb, *arguments = shlex.split(line)
        assert program == "gptwright"
        smaller = ["--device=cpu", "--block_size=8"] if verb == "train" else []
        answer = gptwright(verb, *arguments, *smaller)
        assert answer.status == 0, (line, answer.err)
    assert (tmp_path / "out-mine" / "checkpoints" / "step-00000012").is_dir()
    assert {path.name for path in (tmp_path / "mine-gguf").iterdir()} == {"model.gguf"}
    (example,) = blocks_of("interop.md", "python")
    exec(compile(example, "interop.md", "exec"), {})

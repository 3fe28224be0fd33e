"""The commands of docs/data.md, as they are printed there, on generated Parquet and with a small model."""

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.conftest import Answer

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

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from gptwright.data.prepare import prepare
from tests.conftest import Answer

Command = Callable[..., Answer]


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    """Forty files of which two are the same, as a byte dataset."""
    folder = tmp_path / "texts"
    folder.mkdir()
    for number in range(40):
        (folder / f"{number:02d}.txt").write_text(f"text {number % 39} has some words\n" * 40)
    prepare(str(folder), out=tmp_path / "d", tokenizer="byte")
    return tmp_path / "d"


def test_it_says_what_a_dataset_holds(texts: Path, gptwright: Command) -> None:
    answer = gptwright("inspect", str(texts), "--plan", "shakespeare-char-cpu")
    assert answer.status == 0, answer.err
    for shown in (
        "vocabulary 257 ids",
        "from texts: 40 documents",
        "1 duplicate, 0 near-duplicates",
        "1 file, ",
        " documents, 1.0",
        "most frequent: ' '",
        "passes over train",
        "0 training documents are in validation too",
        "train 0: 'text 0 has some words",
    ):
        assert shown in answer.out, shown


def test_verify_reads_every_byte_and_finds_a_changed_one(texts: Path, gptwright: Command) -> None:
    document = json.loads(gptwright("inspect", str(texts), "--verify", "--json").out)
    assert document["schema"] == "gptwright.inspection/1"
    assert document["verified_bytes"] == sum(split["tokens"] * 2 for split in document["splits"].values())
    assert document["overlap"] == 0
    assert document["histogram"]["used"] < 40
    assert sum(item["share"] for item in document["histogram"]["most"]) <= 1
    assert document["manifest"]["sources"][0]["duplicates"] == 1
    content = bytearray((texts / "val.bin").read_bytes())
    content[100] ^= 1
    (texts / "val.bin").write_bytes(content)
    assert gptwright("inspect", str(texts)).status == 0
    answer = gptwright("inspect", str(texts), "--verify")
    assert answer.status == 2
    assert "val.bin has changed" in answer.err


def test_a_document_on_both_sides_is_counted(texts: Path, gptwright: Command) -> None:
    """Somebody copies a validation document into train and mends the manifest."""
    train = (texts / "train.bin").read_bytes()
    val = (texts / "val.bin").read_bytes()
    separator = (256).to_bytes(2, "little")
    first = val[: val.index(separator) + 2]
    (texts / "train.bin").write_bytes(train + first)
    manifest = json.loads((texts / "manifest.json").read_text())
    record = manifest["splits"]["train"]
    record["tokens"] = record["shards"][0]["tokens"] = len(train + first) // 2
    record["shards"][0]["sha256"] = hashlib.sha256(train + first).hexdigest()
    (texts / "manifest.json").write_text(json.dumps(manifest))
    assert json.loads(gptwright("inspect", str(texts), "--verify", "--json").out)["overlap"] == 1


def test_nanogpts_folder_and_no_dataset(tmp_path: Path, gptwright: Command) -> None:
    for name in ("train.bin", "val.bin"):
        (tmp_path / name).write_bytes(bytes([7, 0] * 100))
    answer = gptwright("inspect", str(tmp_path))
    assert answer.status == 0, answer.err
    assert "it has no manifest; `gptwright prepare" in answer.out
    done = gptwright("prepare", str(tmp_path))
    assert done.status == 0, done.err
    assert "it has no manifest" not in gptwright("inspect", str(tmp_path), "--verify").out
    assert gptwright("inspect", str(tmp_path / "absent")).status == 2


def test_prepare_without_a_place_says_what_is_missing(tmp_path: Path, gptwright: Command) -> None:
    (tmp_path / "a.txt").write_text("text")
    answer = gptwright("prepare", str(tmp_path / "a.txt"))
    assert answer.status == 2
    assert "Missing option '--out'" in answer.err

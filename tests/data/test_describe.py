"""Folders of ids from elsewhere: read as they are, and given a manifest in place."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from gptwright.data.dataset import open_dataset
from gptwright.data.describe import describe_in_place
from gptwright.data.tokenizers import Gpt2Tokenizer
from gptwright.errors import DataError

DOCUMENTS = ["Hello world.\n", "Another document.", "And a third, नमस्ते 你好."]


def write_shard(path: Path, ids: list[int], *, magic: int = 20240520, version: int = 1) -> None:
    header = np.zeros(256, dtype="<i4")
    header[:3] = magic, version, len(ids)
    dtype = "<u2" if version == 1 else "<u4"
    path.write_bytes(header.tobytes() + np.array(ids, dtype=dtype).tobytes())


@pytest.fixture
def headed(tmp_path: Path) -> Path:
    """A folder as llm.c and modded-nanogpt write it: each document begins with the end-of-text id."""
    folder = tmp_path / "fineweb10B"
    folder.mkdir()
    tokenizer = Gpt2Tokenizer()
    ids = [token for text in DOCUMENTS for token in [50256, *tokenizer.encode(text).tolist()]]
    write_shard(folder / "fineweb_train_000001.bin", ids)
    write_shard(folder / "fineweb_train_000002.bin", ids * 3)
    write_shard(folder / "fineweb_val_000000.bin", ids[:7])
    return folder


def test_shards_with_headers_are_read_as_they_are(headed: Path) -> None:
    dataset = open_dataset(str(headed))
    assert (dataset.tokenizer_kind, dataset.vocab_size, dataset.assumed) == ("gpt2", 50257, False)
    train = dataset.splits["train"]
    assert len(train.shards) == 2
    assert train.read(0, 4).tolist() == [50256, 15496, 995, 13]
    assert dataset.splits["val"].tokens == 7
    assert dataset.verify() == 2 * (train.tokens + 7)


def test_they_get_a_manifest_in_place(headed: Path) -> None:
    before = {path.name: path.read_bytes() for path in headed.iterdir()}
    ids = open_dataset(str(headed)).splits["train"].read(0, 4).tolist()
    report = describe_in_place(headed)
    assert {name: (headed / name).read_bytes() for name in before} == before
    dataset = open_dataset(str(headed))
    assert dataset.manifest is not None
    assert dataset.verify() > 0
    assert dataset.splits["train"].read(0, 4).tolist() == ids
    assert dataset.tokenizer().decode(dataset.splits["train"].read(1, 3).tolist()) == "Hello world."
    record = dataset.manifest.splits["train"]
    assert record.documents == 12
    assert record.text_bytes == 4 * sum(len(text.encode()) for text in DOCUMENTS)
    assert dataset.manifest.validation.method == "given"
    assert report.tokens == {"train": record.tokens, "val": 7}
    # A second time it says the same and writes nothing.
    written = (headed / "manifest.json").stat().st_mtime_ns
    assert describe_in_place(headed).tokens == report.tokens
    assert (headed / "manifest.json").stat().st_mtime_ns == written


def test_nanogpts_folder_gets_one_too(nanogpt_folder: Callable[..., Path]) -> None:
    folder = nanogpt_folder([15496, 995, 50256, 15496], [995, 995])
    report = describe_in_place(folder)
    assert report.tokenizer.text == "gpt2"
    assert "no meta.pkl" in report.tokenizer.reason
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["splits"]["train"]["shards"][0]["header_bytes"] == 0
    assert manifest["splits"]["train"]["text_bytes"] == len("Hello worldHello")
    assert open_dataset(str(folder)).verify() == 12


def test_a_truncated_shard_with_a_header_is_named(headed: Path) -> None:
    path = headed / "fineweb_train_000002.bin"
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(DataError, match=r"fineweb_train_000002\.bin is truncated or damaged: .* uint16 ids"):
        open_dataset(str(headed))


def test_a_missing_side_is_named(headed: Path) -> None:
    (headed / "fineweb_val_000000.bin").unlink()
    with pytest.raises(DataError, match=r"none named …_val_….bin"):
        open_dataset(str(headed))


def test_llama_3s_shards_need_their_tokenizer(tmp_path: Path) -> None:
    for split in ("train", "val"):
        write_shard(tmp_path / f"edu_{split}_000000.bin", [128_000, 5, 6], magic=20240801, version=7)
    dataset = open_dataset(str(tmp_path))
    assert (dataset.vocab_size, dataset.tokenizer_kind) == (128_256, "unknown")
    assert dataset.splits["train"].read(0, 2).tolist() == [128_000, 5]
    with pytest.raises(DataError, match=r"does not say which tokenizer made its 128,256 ids"):
        describe_in_place(tmp_path)


def test_a_vocabulary_that_the_ids_cannot_have_is_refused(headed: Path, tmp_path: Path) -> None:
    many = "".join(map(chr, range(0x10000, 0x20100)))
    (tmp_path / "many.json").write_text(
        json.dumps(
            {"schema": "gptwright.tokenizer/1", "kind": "char", "characters": many, "separator": False}
        )
    )
    with pytest.raises(DataError, match=r"a vocabulary of 65,792 ids does not fit the uint16"):
        describe_in_place(headed, tokenizer=str(tmp_path / "many.json"))
    assert not (headed / "manifest.json").exists()

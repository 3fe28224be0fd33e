import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gptwright.data import dataset as dataset_module
from gptwright.data.dataset import TokenDataset, check_ids, open_dataset, require_windows
from gptwright.errors import DataError, typed

META = {"vocab_size": 3, "itos": {0: "\n", 1: "a", 2: "b"}, "stoi": {"\n": 0, "a": 1, "b": 2}}
Maker = Callable[..., Path]


def edit_manifest(dataset: TokenDataset, change: Callable[[Any], None]) -> None:
    path = dataset.folder / "manifest.json"
    fields = json.loads(path.read_text())
    change(fields)
    path.write_text(json.dumps(fields))


def test_our_folder_says_what_it_is(prepared: TokenDataset) -> None:
    assert (prepared.name, prepared.tokenizer_kind, prepared.vocab_size) == ("mine", "byte", 257)
    assert list(prepared.splits) == ["train", "val"]
    assert prepared.vocab_origin == f"manifest.json of {prepared.folder.as_posix()}: byte tokenizer"
    assert not prepared.assumed
    train = prepared.splits["train"]
    assert train.read(5, 20).tolist() == train.shards[0].ids[5:25].tolist()
    assert prepared.tokenizer().decode(train.read(0, 4).tolist()) == "file"
    with pytest.raises(IndexError, match="are not in one shard"):
        train.read(train.tokens - 5, 6)


def test_nanogpts_folder_is_read_with_its_vocabulary(tmp_path: Path, nanogpt_folder: Maker) -> None:
    folder = nanogpt_folder([1, 2, 0, 1], [2, 2], pickle.dumps(META))
    dataset = open_dataset("theirs", root=tmp_path)
    assert (dataset.tokenizer_kind, dataset.vocab_size, dataset.assumed) == ("char", 3, False)
    assert dataset.tokenizer().decode(dataset.splits["train"].read(0, 4).tolist()) == "ab\na"
    assert dataset.vocab_origin == f"meta.pkl of {folder.as_posix()}"
    assert dataset.verify() == 12
    assert open_dataset(str(folder)).fingerprint == dataset.fingerprint


def test_nanogpts_folder_without_meta_means_gpt2(tmp_path: Path, nanogpt_folder: Maker) -> None:
    nanogpt_folder([15496, 995], [50256])
    dataset = open_dataset("theirs", root=tmp_path)
    assert (dataset.tokenizer_kind, dataset.vocab_size, dataset.assumed) == ("gpt2", 50257, True)
    assert "assumed:" in dataset.vocab_origin
    assert "has no meta.pkl, for which nanoGPT means GPT-2's BPE" in dataset.vocab_origin
    assert dataset.tokenizer().decode([15496, 995]) == "Hello world"


def test_a_meta_with_a_size_alone_trains_but_cannot_decode(tmp_path: Path, nanogpt_folder: Maker) -> None:
    nanogpt_folder([1, 2], [3], pickle.dumps({"vocab_size": 4096}))
    dataset = open_dataset("theirs", root=tmp_path)
    assert (dataset.tokenizer_kind, dataset.vocab_size) == ("unknown", 4096)
    with pytest.raises(DataError, match=r"gives a vocabulary size \(4096\) but no vocabulary"):
        dataset.tokenizer()


@pytest.mark.parametrize(
    ("meta", "message"),
    [
        ([1, 2], "its vocab_size is None"),
        ({"vocab_size": "many"}, "its vocab_size is 'many'"),
        ({"vocab_size": 10**9}, "its vocab_size is 1000000000"),
        ({"vocab_size": 3, "itos": {0: "a"}}, "itos holds something that is not one character"),
        ({"vocab_size": 3, "itos": ["a"]}, "itos does not name 3 tokens"),
        ({"vocab_size": 2, "itos": ["a", "bc"]}, "itos holds something that is not one character"),
    ],
)
def test_a_strange_meta_is_explained(
    tmp_path: Path, nanogpt_folder: Maker, meta: object, message: str
) -> None:
    nanogpt_folder([0], [0], pickle.dumps(meta))
    with pytest.raises(DataError, match=rf"meta\.pkl is not a vocabulary as nanoGPT writes it: {message}"):
        open_dataset("theirs", root=tmp_path)


def test_a_meta_with_code_stops_the_opening(tmp_path: Path, nanogpt_folder: Maker) -> None:
    nanogpt_folder([0], [0], pickle.dumps({"vocab_size": Path("x")}))
    with pytest.raises(DataError, match=r"pickle opcode STACK_GLOBAL[\s\S]*nothing of it was executed"):
        open_dataset("theirs", root=tmp_path)


def test_a_text_in_place_of_a_dataset_is_answered_with_how_to_prepare_it(tmp_path: Path) -> None:
    text = tmp_path / "my notes.txt"
    text.write_text("to be")
    with pytest.raises(DataError, match=r"my notes.txt is a file and not a token dataset") as caught:
        open_dataset(str(text), root=tmp_path)
    assert caught.value.fix is not None
    out = tmp_path / "data" / "my notes"
    assert caught.value.fix.startswith(f"gptwright prepare {typed(text)} --out {typed(out)}")


def test_a_missing_dataset_names_the_nearest_and_the_command(
    tmp_path: Path, prepared: TokenDataset, nanogpt_folder: Maker
) -> None:
    nanogpt_folder([0], [0])
    with pytest.raises(DataError) as caught:
        open_dataset("mime", root=tmp_path)
    message = str(caught.value)
    assert f"there is no dataset 'mime'; under {tmp_path / 'data'} are: mine, theirs" in message
    assert "did you mean 'mine'?" in message
    assert f"gptwright prepare YOUR_TEXT.txt --out {(tmp_path / 'data' / 'mime').as_posix()}" in message
    with pytest.raises(DataError, match=r"--out other/place$"):
        open_dataset("other/place", root=tmp_path)


def test_nanogpts_own_names_get_their_command(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        open_dataset("shakespeare_char", root=tmp_path)
    assert f"there are none under {tmp_path / 'data'}" in str(caught.value)
    out = (tmp_path / "data" / "shakespeare_char").as_posix()
    assert f"gptwright prepare shakespeare --tokenizer char --split nanogpt --out {out}" in str(caught.value)


def test_a_folder_of_text_is_not_a_dataset(tmp_path: Path, corpus: Path) -> None:
    with pytest.raises(DataError) as caught:
        open_dataset(str(corpus), root=tmp_path)
    assert "is not a token dataset: it has neither manifest.json nor train.bin (it holds 00.txt," in str(
        caught.value
    )
    assert "--out " + (tmp_path / "corpus-tokens").as_posix() in str(caught.value)


def test_a_folder_of_nanogpt_names_its_own_script(tmp_path: Path) -> None:
    folder = tmp_path / "data" / "openwebtext"
    folder.mkdir(parents=True)
    (folder / "prepare.py").write_text("")
    with pytest.raises(DataError) as caught:
        open_dataset("openwebtext", root=tmp_path)
    assert f"python {folder / 'prepare.py'}, or gptwright prepare" in str(caught.value)
    assert str(caught.value).endswith(f"--out {folder.as_posix()}")


def test_a_missing_shard_is_named(prepared: TokenDataset) -> None:
    (prepared.folder / "val.bin").unlink()
    with pytest.raises(DataError, match=r"shard .*val\.bin is missing"):
        open_dataset(str(prepared.folder))


def test_a_truncated_shard_is_named_with_both_sizes(prepared: TokenDataset) -> None:
    path = prepared.folder / "train.bin"
    content = path.read_bytes()
    path.write_bytes(content[:-1000])
    tokens = len(content) // 2
    with pytest.raises(DataError) as caught:
        open_dataset(str(prepared.folder))
    assert (
        f"shard {path} is truncated or damaged: {len(content) - 1000:,} bytes, where {tokens:,} uint16 ids"
        f" are {len(content):,}"
    ) in str(caught.value)


def test_an_odd_number_of_bytes_is_refused(tmp_path: Path, nanogpt_folder: Maker) -> None:
    folder = nanogpt_folder([1, 2, 3], [1])
    (folder / "train.bin").write_bytes(b"12345")
    with pytest.raises(DataError, match="5 bytes, not a whole number of 2-byte ids"):
        open_dataset("theirs", root=tmp_path)


def test_a_changed_byte_is_found(prepared: TokenDataset) -> None:
    fingerprint = prepared.fingerprint
    path = prepared.folder / "train.bin"
    content = bytearray(path.read_bytes())
    content[20_000] ^= 1
    path.write_bytes(content)
    changed = open_dataset(str(prepared.folder))
    with pytest.raises(
        DataError, match=r"shard .*train\.bin has changed: sha256 [0-9a-f]{12}…, the manifest says"
    ):
        changed.verify()
    assert changed.fingerprint != fingerprint


def test_a_changed_tokenizer_is_found(prepared: TokenDataset) -> None:
    (prepared.folder / "tokenizer.json").write_text('{"schema": "gptwright.tokenizer/1", "kind": "gpt2"}')
    with pytest.raises(DataError, match=r"tokenizer\.json is not the tokenizer of this dataset"):
        open_dataset(str(prepared.folder)).verify()


def test_the_fingerprint_follows_content_not_place(
    tmp_path: Path, prepared: TokenDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared.folder.rename(tmp_path / "elsewhere")
    moved = open_dataset(str(tmp_path / "elsewhere"))
    assert moved.fingerprint == prepared.fingerprint
    # A large shard is sampled: its first and last bytes always count.
    monkeypatch.setattr(dataset_module, "_WHOLE_BYTES", 1000)
    monkeypatch.setattr(dataset_module, "_BLOCK_BYTES", 10)
    whole = open_dataset(str(tmp_path / "elsewhere")).fingerprint
    path = tmp_path / "elsewhere" / "train.bin"
    content = path.read_bytes()
    for position in (0, len(content) - 1):
        path.write_bytes(content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :])
        assert open_dataset(str(tmp_path / "elsewhere")).fingerprint != whole
    path.write_bytes(content)
    assert open_dataset(str(tmp_path / "elsewhere")).fingerprint == whole


def test_an_id_out_of_range_is_named(tmp_path: Path, nanogpt_folder: Maker) -> None:
    folder = nanogpt_folder([1, 2, 0, 7, 1], [2, 2], pickle.dumps(META))
    dataset = open_dataset("theirs", root=tmp_path)
    for check in (dataset.verify, lambda: check_ids(dataset.splits["train"], 3)):
        with pytest.raises(DataError) as caught:
            check()
        assert (
            f"shard {folder / 'train.bin'} has token id 7 at position 3, outside the vocabulary of 3 (0 to 2)"
        ) in str(caught.value)
    check_ids(dataset.splits["train"], 8)
    check_ids(dataset.splits["train"], 3, scan_bytes=6)


def test_a_split_shorter_than_a_block_is_refused(tmp_path: Path, nanogpt_folder: Maker) -> None:
    nanogpt_folder(list(range(65)), list(range(64)))
    splits = open_dataset("theirs", root=tmp_path).splits
    require_windows(splits["train"], 64)
    with pytest.raises(DataError) as caught:
        require_windows(splits["val"], 64)
    assert "the validation split has 64 tokens, block_size is 64" in str(caught.value)
    assert "one window needs 65 tokens" in str(caught.value)
    assert "--block_size=63 or less, or prepare more text" in str(caught.value)


def test_an_empty_split_opens_and_is_refused_for_windows(tmp_path: Path, nanogpt_folder: Maker) -> None:
    nanogpt_folder([1, 2], [])
    dataset = open_dataset("theirs", root=tmp_path)
    with pytest.raises(DataError, match="the validation split has 0 tokens"):
        require_windows(dataset.splits["val"], 1)


@pytest.mark.parametrize("name", ["../train.bin", "/etc/passwd", "a\\b", "C:x", "..", "", "a/b"])
def test_a_manifest_cannot_point_outside_its_folder(prepared: TokenDataset, name: str) -> None:
    edit_manifest(prepared, lambda fields: fields["splits"]["train"]["shards"][0].update(file=name))
    with pytest.raises(DataError, match=r"splits\.train\.shards\.0\.file: .*must be a plain file name"):
        open_dataset(str(prepared.folder))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda fields: fields.update(extra=1), "extra: Extra inputs are not permitted"),
        (lambda fields: fields.pop("dtype"), "dtype: Field required"),
        (lambda fields: fields.update(schema="gptwright.dataset/9"), "schema: Input should be"),
        (lambda fields: fields["splits"].pop("val"), "it has no split val"),
        (lambda fields: fields["splits"]["val"].update(tokens=1), "split val says 1 tokens, its shards"),
        (lambda fields: fields.update(vocab_size=70_000), "a vocabulary of 70000 does not fit uint16"),
        (lambda fields: fields["tokenizer"].update(sha256="x"), r"tokenizer\.sha256: String should match"),
    ],
)
def test_a_manifest_that_makes_no_sense_is_explained(
    prepared: TokenDataset, change: Callable[[Any], None], message: str
) -> None:
    edit_manifest(prepared, change)
    with pytest.raises(DataError, match=rf"manifest .*manifest\.json cannot be used: {message}"):
        open_dataset(str(prepared.folder))


def test_a_manifest_that_claims_a_huge_shard_allocates_nothing(prepared: TokenDataset) -> None:
    def claim(fields: Any) -> None:
        fields["splits"]["train"].update(tokens=10**15)
        fields["splits"]["train"]["shards"][0].update(tokens=10**15)

    edit_manifest(prepared, claim)
    with pytest.raises(DataError, match="where 1,000,000,000,000,000 uint16 ids are 2,000,000,000,000,000"):
        open_dataset(str(prepared.folder))


def test_a_manifest_that_is_not_json_is_explained(prepared: TokenDataset) -> None:
    (prepared.folder / "manifest.json").write_bytes(b"\x00{")
    with pytest.raises(DataError, match=r"manifest\.json cannot be used: Invalid JSON"):
        open_dataset(str(prepared.folder))


def test_reading_copies_nothing(prepared: TokenDataset) -> None:
    train = prepared.splits["train"]
    assert np.shares_memory(train.read(3, 9), train.shards[0].ids)
    assert not train.read(3, 9).flags.writeable

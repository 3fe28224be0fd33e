import json
import math
import os
import pickle
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gptwright.data import prepare as prepare_module
from gptwright.data import shards, stretches
from gptwright.data.dataset import open_dataset
from gptwright.data.pieces import cut, piece_size
from gptwright.data.prepare import PrepareReport, prepare
from gptwright.data.tokenizers import Tokenizer, load_tokenizer, make_tokenizer
from gptwright.errors import DataError, DiskFullError


def ids_of(out: Path, split: str) -> Any:
    return np.concatenate([shard.ids for shard in open_dataset(str(out)).splits[split].shards])


def texts_of(out: Path, split: str) -> list[str]:
    """The stretches of a split, taken apart at the separators."""
    dataset = open_dataset(str(out))
    tokenizer = dataset.tokenizer()
    ids = ids_of(out, split)
    assert ids[-1] == tokenizer.separator_id
    ends = np.flatnonzero(ids == tokenizer.separator_id)
    return [
        tokenizer.decode(part[part != tokenizer.separator_id].tolist()) for part in np.split(ids, ends)[:-1]
    ]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize(
    ("tokenizer", "vocab_size", "tokens"),
    [("char", 65, (1_003_854, 111_540)), ("gpt2", 50257, (301_966, 36_059))],
)
def test_tiny_shakespeare_has_nanogpts_counts(
    tmp_path: Path, shakespeare: Path, tokenizer: str, vocab_size: int, tokens: tuple[int, int]
) -> None:
    out = tmp_path / "d"
    report = prepare("shakespeare", out=out, tokenizer=tokenizer, split="nanogpt", from_file=shakespeare)
    assert (report.tokens["train"], report.tokens["val"]) == tokens
    assert report.vocab_size == vocab_size
    assert report.bytes_per_token == pytest.approx(1_115_394 / sum(tokens))
    assert "speak for that stretch" in report.val_note
    text = shakespeare.read_text(encoding="utf-8")
    end = int(len(text) * 0.9)
    made = load_tokenizer(out / "tokenizer.json")
    assert made.decode(ids_of(out, "train").tolist()) == text[:end]
    assert made.decode(ids_of(out, "val").tolist()) == text[end:]


def test_nanogpt_itself_can_read_the_folder(tmp_path: Path, shakespeare: Path) -> None:
    out = tmp_path / "d"
    prepare("shakespeare", out=out, split="nanogpt", from_file=shakespeare)
    # As nanoGPT's train.py and sample.py do.
    data = np.memmap(out / "train.bin", dtype=np.uint16, mode="r")
    meta = pickle.loads((out / "meta.pkl").read_bytes())
    text = shakespeare.read_text(encoding="utf-8")
    assert (len(data), meta["vocab_size"]) == (1_003_854, 65)
    assert "".join(meta["itos"][number] for number in data[:1000].tolist()) == text[:1000]
    assert [meta["stoi"][character] for character in text[:1000]] == data[:1000].tolist()


def test_hash_split_of_one_file_loses_and_doubles_nothing(tmp_path: Path, shakespeare: Path) -> None:
    out = tmp_path / "d"
    report = prepare("shakespeare", out=out, from_file=shakespeare)
    assert (report.tokenizer.value, report.vocab_size) == ("char", 65)
    assert sum(report.tokens.values()) == 1_115_394
    assert report.tokens["val"] == pytest.approx(111_539, rel=0.1)
    text = shakespeare.read_text(encoding="utf-8")
    val = load_tokenizer(out / "tokenizer.json").decode(ids_of(out, "val").tolist())
    train = load_tokenizer(out / "tokenizer.json").decode(ids_of(out, "train").tolist())
    pieces = cut(text, piece_size(len(text)))
    in_val = [piece for piece in pieces if piece in val]
    assert "".join(in_val) == val
    assert "".join(piece for piece in pieces if piece not in val) == train
    # Drawn over the whole text, not from one end of it.
    places = [text.index(piece) / len(text) for piece in in_val]
    assert min(places) < 0.2
    assert max(places) > 0.8


@pytest.mark.parametrize("tokenizer", ["char", "byte", "gpt2", "bpe:400"])
def test_every_document_is_on_one_side_and_comes_back(tmp_path: Path, corpus: Path, tokenizer: str) -> None:
    out = tmp_path / "d"
    report = prepare(str(corpus), out=out, tokenizer=tokenizer)
    train, val = texts_of(out, "train"), texts_of(out, "val")
    source = sorted(path.read_bytes().decode() for path in corpus.iterdir())
    assert sorted(train + val) == source
    assert train
    assert val
    manifest = json.loads((out / "manifest.json").read_text())
    for split in ("train", "val"):
        record = manifest["splits"][split]
        texts = train if split == "train" else val
        assert record["documents"] == len(texts)
        assert record["text_bytes"] == sum(len(text.encode()) for text in texts)
        assert record["tokens"] == report.tokens[split] == len(ids_of(out, split))
        assert record["shards"][0]["max_id"] == ids_of(out, split).max()
    assert open_dataset(str(out)).verify() == 2 * sum(report.tokens.values())
    assert (out / "meta.pkl").exists() == (tokenizer == "char")


def test_the_result_depends_on_neither_threads_nor_file_order(
    tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stretches, "_BLOCK_CHARACTERS", 500)
    prepare(str(corpus), out=tmp_path / "one", tokenizer="gpt2", workers=1)
    prepare(str(corpus), out=tmp_path / "five", tokenizer="gpt2", workers=5)
    assert contents(tmp_path / "one") == contents(tmp_path / "five")
    names = sorted(path.name for path in corpus.iterdir())
    for name, other in zip(names, reversed(names), strict=True):
        (corpus / name).rename(corpus / f"renamed-{other}")
    prepare(str(corpus), out=tmp_path / "renamed", tokenizer="gpt2")
    for split in ("train", "val"):
        one, renamed = texts_of(tmp_path / "one", split), texts_of(tmp_path / "renamed", split)
        assert one != renamed or len(one) == 1
        assert sorted(one) == sorted(renamed)


def test_a_text_that_occurs_twice_is_on_one_side(tmp_path: Path, corpus: Path) -> None:
    for path in list(corpus.iterdir()):
        shutil.copy(path, corpus / f"copy-{path.name}")
    report = prepare(str(corpus), out=tmp_path / "d", tokenizer="byte")
    train, val = texts_of(tmp_path / "d", "train"), texts_of(tmp_path / "d", "val")
    assert not set(train) & set(val)
    # Of equal documents one is kept.
    assert len(train) + len(val) == len(set(train)) + len(set(val)) == 30
    assert report.duplicates == 30
    assert report.overlap == 0


def test_many_shards_hold_what_one_would(
    tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(str(corpus), out=tmp_path / "one", tokenizer="byte")
    monkeypatch.setattr(shards, "TOKENS_PER_SHARD", 10_000)
    prepare(str(corpus), out=tmp_path / "many", tokenizer="byte")
    assert (tmp_path / "many" / "train-00000.bin").stat().st_size == 20_000
    assert not (tmp_path / "many" / "train.bin").exists()
    for split in ("train", "val"):
        assert np.array_equal(ids_of(tmp_path / "one", split), ids_of(tmp_path / "many", split))
    assert open_dataset(str(tmp_path / "many")).verify() > 0


def test_max_tokens_ends_training_and_keeps_validation(tmp_path: Path, corpus: Path) -> None:
    prepare(str(corpus), out=tmp_path / "all", tokenizer="gpt2")
    report = prepare(str(corpus), out=tmp_path / "d", tokenizer="gpt2", max_tokens=5001)
    assert report.tokens["train"] == 5001
    assert np.array_equal(ids_of(tmp_path / "d", "train"), ids_of(tmp_path / "all", "train")[:5001])
    assert np.array_equal(ids_of(tmp_path / "d", "val"), ids_of(tmp_path / "all", "val"))


def test_a_vocabulary_above_65536_takes_four_bytes(tmp_path: Path, corpus: Path) -> None:
    (corpus / "many.txt").write_text("".join(map(chr, range(0x10000, 0x20100))), encoding="utf-8")
    report = prepare(str(corpus), out=tmp_path / "d", tokenizer="char")
    assert report.vocab_size > 2**16
    dataset = open_dataset(str(tmp_path / "d"))
    assert dataset.splits["train"].shards[0].ids.dtype == np.dtype("<u4")
    assert dataset.verify() == 4 * sum(report.tokens.values())


def test_the_default_tokenizer_comes_with_its_reason(tmp_path: Path, corpus: Path) -> None:
    report = prepare(str(corpus), out=tmp_path / "small")
    assert report.tokenizer.value == "char"
    assert "below 5 MB" in report.tokenizer.reason
    for path in corpus.iterdir():
        path.write_bytes(path.read_bytes() * 60)
    assert sum(path.stat().st_size for path in corpus.iterdir()) > 5_000_000
    report = prepare(str(corpus), out=tmp_path / "large", max_tokens=1000)
    assert report.tokenizer.value == "gpt2"
    assert "above 5 MB" in report.tokenizer.reason


def test_a_small_validation_split_is_announced(tmp_path: Path, corpus: Path) -> None:
    report = prepare(str(corpus), out=tmp_path / "d", tokenizer="gpt2")
    tokens = report.tokens["val"]
    assert report.val_windows == {1024: (tokens - 1) // 1024, 64: (tokens - 1) // 64}
    assert report.warnings == [
        f"the validation split has only {tokens:,} tokens ({report.val_windows[1024]} windows of 1,024,"
        f" {report.val_windows[64]} of 64): small differences between runs are within chance; more text helps"
    ]
    share = 100 / math.sqrt(report.val_windows[1024])
    assert f"a standard error of {share:.1f} % of the spread between windows" in report.val_note


def test_a_file_of_records_that_is_read_as_text_is_announced(tmp_path: Path) -> None:
    for name, told in (("texts.CSV", True), ("texts.json", True), ("texts.log", False)):
        (tmp_path / name).write_text('[{"text": "some words"}]\n' * 50, encoding="utf-8")
        warnings = prepare(str(tmp_path / name), out=tmp_path / f"of-{name}", tokenizer="char").warnings
        assert [w for w in warnings if "read as plain text" in w] == (warnings[:1] if told else [])


def test_skipped_files_are_reported(tmp_path: Path, corpus: Path) -> None:
    (corpus / "bad.txt").write_bytes(b"ab\xff")
    with pytest.raises(DataError, match=r"bad\.txt is not UTF-8: invalid bytes ff at byte offset 2"):
        prepare(str(corpus), out=tmp_path / "d")
    assert not (tmp_path / "d").exists()
    report = prepare(str(corpus), out=tmp_path / "d", skip_bad=True)
    assert [item.name for item in report.skipped] == ["bad.txt"]
    assert report.documents == 30
    manifest = json.loads((tmp_path / "d" / "manifest.json").read_text())
    assert manifest["sources"][0]["skipped"] == [{"name": "bad.txt", "reason": "not UTF-8 at byte 2 (ff)"}]


def test_progress_rises_to_one_in_each_stage(tmp_path: Path, corpus: Path) -> None:
    seen: dict[str, list[float]] = {}
    prepare(
        str(corpus),
        out=tmp_path / "d",
        tokenizer="char",
        progress=lambda step: seen.setdefault(step.stage, []).append(step.done / step.total),
    )
    assert list(seen) == ["reading", "tokenizer", "encoding"]
    assert all(values == sorted(values) for values in seen.values())
    assert seen["tokenizer"][-1] == seen["encoding"][-1] == 1.0


@pytest.mark.parametrize(("text", "split"), [("short", "hash"), ("x", "nanogpt")])
def test_a_corpus_too_small_to_split_is_refused(tmp_path: Path, text: str, split: Any) -> None:
    (tmp_path / "a.txt").write_text(text)
    with pytest.raises(DataError, match=r"cannot be split|too few to be split"):
        prepare(str(tmp_path / "a.txt"), out=tmp_path / "d", split=split)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt"]


def test_a_foreign_vocabulary_names_the_file(tmp_path: Path, corpus: Path) -> None:
    (tmp_path / "a.txt").write_text("only latin letters here\n" * 100 + "end")
    prepare(str(tmp_path / "a.txt"), out=tmp_path / "latin", tokenizer="char")
    with pytest.raises(DataError, match=r"in a part of \d\d\.txt: character"):
        prepare(str(corpus), out=tmp_path / "d", tokenizer=str(tmp_path / "latin" / "tokenizer.json"))
    assert not (tmp_path / "d").exists()


def test_numbers_below_one_are_refused(tmp_path: Path, corpus: Path) -> None:
    with pytest.raises(DataError, match="--max-tokens is 0"):
        prepare(str(corpus), out=tmp_path / "d", max_tokens=0)
    with pytest.raises(DataError, match="--workers is -1"):
        prepare(str(corpus), out=tmp_path / "d", workers=-1)


@pytest.fixture
def interrupted(monkeypatch: pytest.MonkeyPatch) -> type[BaseException]:
    """Ctrl-C after the shards are written and before the manifest is."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(prepare_module, "_write_descriptions", stop)
    return KeyboardInterrupt


def test_an_interrupt_leaves_nothing(tmp_path: Path, corpus: Path, interrupted: type[BaseException]) -> None:
    with pytest.raises(interrupted):
        prepare(str(corpus), out=tmp_path / "new" / "deep" / "d")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus"]


def test_an_interrupt_keeps_the_dataset_that_was_there(
    tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "d"
    prepare(str(corpus), out=out)
    before = contents(out)
    (corpus / "new.txt").write_text("one more")
    real = Path.rename

    def second_fails(self: Path, target: Path) -> Path:
        if self.name == "dataset":
            raise KeyboardInterrupt
        return real(self, target)

    monkeypatch.setattr(Path, "rename", second_fails)
    with pytest.raises(KeyboardInterrupt):
        prepare(str(corpus), out=out)
    monkeypatch.undo()
    assert contents(out) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus", "d"]
    prepare(str(corpus), out=out)
    assert contents(out) != before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus", "d"]


def test_only_a_dataset_of_the_same_settings_is_replaced(tmp_path: Path, corpus: Path) -> None:
    out = tmp_path / "d"

    def refused(message: str, **settings: Any) -> None:
        before = contents(out)
        with pytest.raises(DataError, match=message):
            prepare(str(corpus), out=out, **settings)
        assert contents(out) == before
        assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus", "d"]

    out.mkdir()
    prepare(str(corpus), out=out, tokenizer="byte")
    refused("a dataset of other settings: tokenizer byte there, gpt2 asked", tokenizer="gpt2")
    (out / "manifest.json").unlink()
    refused(
        "holds a dataset that gptwright did not write: tokenizer.json, train.bin, val.bin", tokenizer="byte"
    )


def test_other_files_in_the_folder_stay(
    tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a checkout of nanoGPT, whose data/NAME folders hold their prepare.py."""
    out = tmp_path / "d"
    out.mkdir()
    (out / "prepare.py").write_text("theirs")
    real = Path.rename

    def third_fails(self: Path, target: Path) -> Path:
        if self.name == "manifest.json":
            raise KeyboardInterrupt
        return real(self, target)

    monkeypatch.setattr(Path, "rename", third_fails)
    with pytest.raises(KeyboardInterrupt):
        prepare(str(corpus), out=out, tokenizer="byte")
    monkeypatch.undo()
    assert contents(out) == {"prepare.py": b"theirs"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus", "d"]
    prepare(str(corpus), out=out, tokenizer="byte")
    first = contents(out)
    assert set(first) == {"prepare.py", "manifest.json", "tokenizer.json", "train.bin", "val.bin"}
    (corpus / "more.txt").write_text("more\n" * 1000)
    prepare(str(corpus), out=out, tokenizer="byte")
    assert contents(out)["prepare.py"] == b"theirs"
    assert contents(out)["train.bin"] != first["train.bin"]
    open_dataset(str(out)).verify()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus", "d"]


def test_a_file_in_the_way_is_refused(tmp_path: Path, corpus: Path) -> None:
    (tmp_path / "d").write_text("x")
    with pytest.raises(DataError, match="d is a file"):
        prepare(str(corpus), out=tmp_path / "d")
    with pytest.raises(DataError, match=r"the dataset cannot be written to .*: Not a directory"):
        prepare(str(corpus), out=tmp_path / "d" / "inside")
    assert (tmp_path / "d").read_text() == "x"


def test_a_corpus_that_changes_is_noticed(
    tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = make_tokenizer

    def meddle(*args: Any, **kwargs: Any) -> Tokenizer:
        (corpus / "00.txt").write_text("other")
        return real(*args, **kwargs)

    monkeypatch.setattr(prepare_module, "make_tokenizer", meddle)
    with pytest.raises(DataError, match="the corpus corpus changed while it was read"):
        prepare(str(corpus), out=tmp_path / "d", tokenizer="byte")
    assert not (tmp_path / "d").exists()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 128 KiB."""
    if os.name != "posix" or os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("needs root to mount a small tmpfs")
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", str(disk)], check=False)
    if mounted.returncode:
        pytest.skip("tmpfs cannot be mounted here")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_a_full_disk_is_named_and_left_clean(tmp_path: Path, corpus: Path, small_disk: Path) -> None:
    with pytest.raises(DiskFullError) as caught:
        prepare(str(corpus), out=small_disk / "deep" / "d", tokenizer="byte")
    assert list(small_disk.iterdir()) == []
    total = sum(path.stat().st_size for path in corpus.iterdir())
    message = str(caught.value)
    assert (
        f"no room for the dataset in {small_disk / 'deep'}: it needs about {2 * total / 1024:.1f} KiB"
        in message
    )
    assert "128.0 KiB are free" in message
    assert "--max-tokens N" in message
    small: PrepareReport = prepare(str(corpus), out=small_disk / "d", tokenizer="byte", max_tokens=10_000)
    assert small.tokens["train"] == 10_000

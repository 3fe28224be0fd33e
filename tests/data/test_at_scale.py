"""Any number of workers, any order of files, any number of kills: the same split, the same bytes."""

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gptwright.data import encoding, shards
from gptwright.data.dataset import open_dataset
from gptwright.data.encode import EncodeTask, encode_unit
from gptwright.data.pool import each_result
from gptwright.data.prepare import prepare
from gptwright.data.sources import parquet
from gptwright.errors import DataError, DiskFullError
from tests.data.test_prepare import contents, texts_of
from tests.processes import have_ended, wait_until

DRIVER = Path(__file__).with_name("kill_driver.py")


@pytest.fixture
def small_units(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dozen units and some shards, as the driver has them."""
    monkeypatch.setattr(parquet, "UNIT_BYTES", 60_000)
    monkeypatch.setattr(shards, "TOKENS_PER_SHARD", 30_000)


def all_texts(folder: Path) -> list[str]:
    return [text for path in sorted(folder.iterdir()) for text in pq.read_table(path)["text"].to_pylist()]


def test_no_document_is_on_both_sides_and_none_is_lost(
    tmp_path: Path, fineweb: Path, small_units: None
) -> None:
    report = prepare(str(fineweb), out=tmp_path / "d", tokenizer="gpt2", workers=1)
    train, val = texts_of(tmp_path / "d", "train"), texts_of(tmp_path / "d", "val")
    texts = all_texts(fineweb)
    assert not set(train) & set(val)
    assert sorted(train + val) == sorted(set(texts))
    # In the order of the corpus, the first of equal ones.
    assert train == [text for text in dict.fromkeys(texts) if text not in set(val)]
    assert (report.documents, report.duplicates, report.overlap) == (1200, 20, 0)
    manifest = open_dataset(str(tmp_path / "d")).manifest
    assert manifest is not None
    assert manifest.validation.drawn == "documents"
    for name, side in (("train", train), ("val", val)):
        record = manifest.splits[name]  # type: ignore[index]
        assert record.documents == sum(shard.documents for shard in record.shards) == len(side)
        assert record.text_bytes == sum(len(text.encode()) for text in side)
    assert open_dataset(str(tmp_path / "d")).verify() > 0


def test_the_split_follows_content_not_order(tmp_path: Path, fineweb: Path, small_units: None) -> None:
    texts = all_texts(fineweb)
    random.Random(1).shuffle(texts)
    pq.write_table(pa.table({"text": texts}), tmp_path / "shuffled.parquet", row_group_size=70)
    prepare(str(fineweb), out=tmp_path / "one", tokenizer="byte", workers=1)
    prepare(str(tmp_path / "shuffled.parquet"), out=tmp_path / "two", tokenizer="byte", workers=1)
    for split in ("train", "val"):
        assert sorted(texts_of(tmp_path / "one", split)) == sorted(texts_of(tmp_path / "two", split))


@pytest.mark.parametrize("tokenizer", ["char", "bpe:400"])
def test_workers_do_not_change_a_byte(
    tmp_path: Path, fineweb: Path, small_units: None, tokenizer: str
) -> None:
    for workers in (1, 3):
        prepare(str(fineweb), out=tmp_path / str(workers), tokenizer=tokenizer, workers=workers)
    assert contents(tmp_path / "1") == contents(tmp_path / "3")


def test_long_text_files_are_cut_into_units_and_lose_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "".join(f"line {number} of a long book\n\n" for number in range(4000))
    (tmp_path / "book.txt").write_text(text)
    monkeypatch.setattr("gptwright.data.sources.text._PART_BYTES", 2000)
    monkeypatch.setattr("gptwright.data.sources.text.UNIT_BYTES", 9000)
    monkeypatch.setattr(shards, "TOKENS_PER_SHARD", 20_000)
    prepare(str(tmp_path / "book.txt"), out=tmp_path / "d", tokenizer="byte", workers=1)
    train, val = texts_of(tmp_path / "d", "train"), texts_of(tmp_path / "d", "val")
    assert sum(map(len, train + val)) == len(text)
    joined = "".join(train) + "".join(val)
    assert sorted(filter(None, joined.split("\n"))) == sorted(filter(None, text.split("\n")))
    # A stretch that goes over the end of a unit is not torn: ten pieces a unit, few of them validation.
    assert len(train) < 60
    manifest = open_dataset(str(tmp_path / "d")).manifest
    assert manifest is not None
    assert manifest.splits["train"].documents == len(train)


def test_the_limit_on_tokens_is_the_same_for_any_workers(
    tmp_path: Path, fineweb: Path, small_units: None
) -> None:
    prepare(str(fineweb), out=tmp_path / "all", tokenizer="byte", workers=1)
    for limit in (1, 30_000, 77_777, 10**9):
        prepare(str(fineweb), out=tmp_path / str(limit), tokenizer="byte", workers=1, max_tokens=limit)
        whole, cut = (open_dataset(str(tmp_path / name)) for name in ("all", str(limit)))
        ids = np.concatenate([shard.ids for shard in whole.splits["train"].shards])[:limit]
        assert np.array_equal(np.concatenate([s.ids for s in cut.splits["train"].shards]), ids)
        assert cut.splits["train"].text_bytes == np.count_nonzero(ids != 256)
        assert contents(tmp_path / "all").get("val.bin") == contents(tmp_path / str(limit)).get("val.bin")
    prepare(str(fineweb), out=tmp_path / "three", tokenizer="byte", workers=3, max_tokens=77_777)
    ours, theirs = contents(tmp_path / "three"), contents(tmp_path / "77777")
    assert ours == theirs


class StoppedError(Exception):
    """What stops the work in this process."""


def stopped_after(number: int, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Lets that many units be encoded; returns the list of those that were."""
    done: list[int] = []

    def results(function: Callable[[Any], Any], tasks: Any, *, workers: int) -> Any:
        def one(task: EncodeTask) -> Any:
            if len(done) == number:
                raise StoppedError
            done.append(task.index)
            return encode_unit(task)

        return each_result(one, tasks, workers=1)

    monkeypatch.setattr(encoding, "each_result", results)
    return done


def test_a_second_run_does_only_what_is_left(
    tmp_path: Path, fineweb: Path, small_units: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(str(fineweb), out=tmp_path / "whole", tokenizer="byte", workers=1)
    first = stopped_after(6, monkeypatch)
    with pytest.raises(StoppedError):
        prepare(str(fineweb), out=tmp_path / "d", tokenizer="byte", workers=1)
    assert first == list(range(6))
    assert not (tmp_path / "d").exists()
    # Two of the six are in a finished shard and were removed; one of the others is damaged.
    kept = sorted(path.name for path in (tmp_path / "d.partial" / "units").glob("*.train.ids"))
    assert len(kept) < 6
    damaged = tmp_path / "d.partial" / "units" / "000005.train.ids"
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"\x99")
    second = stopped_after(10**9, monkeypatch)
    prepare(str(fineweb), out=tmp_path / "d", tokenizer="byte", workers=1)
    assert second == [5, *range(6, second[-1] + 1)]
    assert contents(tmp_path / "d") == contents(tmp_path / "whole")
    assert not (tmp_path / "d.partial").exists()


def test_a_damaged_finished_shard_is_made_again(
    tmp_path: Path, fineweb: Path, small_units: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(str(fineweb), out=tmp_path / "whole", tokenizer="byte", workers=1)
    stopped_after(6, monkeypatch)
    with pytest.raises(StoppedError):
        prepare(str(fineweb), out=tmp_path / "d", tokenizer="byte", workers=1)
    shard = tmp_path / "d.partial" / "dataset" / "train-00001.bin"
    shard.write_bytes(b"\x00" + shard.read_bytes()[1:])
    stopped_after(10**9, monkeypatch)
    prepare(str(fineweb), out=tmp_path / "d", tokenizer="byte", workers=1)
    assert contents(tmp_path / "d") == contents(tmp_path / "whole")


def test_unfinished_work_is_not_taken_for_that_of_another_command(
    tmp_path: Path, fineweb: Path, small_units: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped_after(6, monkeypatch)
    with pytest.raises(StoppedError):
        prepare(str(fineweb), out=tmp_path / "d", tokenizer="byte", workers=1)
    with pytest.raises(DataError) as caught:
        prepare(str(fineweb), out=tmp_path / "d", tokenizer="gpt2", workers=1)
    assert "unfinished work that was begun otherwise: tokenizer byte there, gpt2 asked" in str(caught.value)
    assert "delete that folder" in str(caught.value)
    os.utime(fineweb / "000_00000.parquet", (1, 1))
    with pytest.raises(DataError, match="was begun otherwise: the source files"):
        prepare(str(fineweb), out=tmp_path / "d", tokenizer="byte", workers=1)


def test_a_folder_left_behind_after_the_rename_is_cleared(
    tmp_path: Path, fineweb: Path, small_units: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed = shutil.rmtree
    monkeypatch.setattr("gptwright.data.work.shutil.rmtree", lambda *_, **__: None)
    prepare(str(fineweb), out=tmp_path / "d", tokenizer="byte", workers=1)
    monkeypatch.setattr("gptwright.data.work.shutil.rmtree", removed)
    assert (tmp_path / "d.partial").exists()
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "d").iterdir()}
    prepare(str(fineweb), out=tmp_path / "d", tokenizer="byte", workers=1)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "d").iterdir()} == before
    assert not (tmp_path / "d.partial").exists()


def test_two_at_once_are_refused(tmp_path: Path, fineweb: Path) -> None:
    def second(_: object) -> None:
        with pytest.raises(DataError, match="another process is preparing"):
            prepare(str(fineweb), out=tmp_path / "d", tokenizer="byte", workers=1)

    prepare(str(fineweb), out=tmp_path / "d", tokenizer="byte", workers=1, progress=second)


def test_a_disk_that_fills_up_keeps_what_is_done(
    tmp_path: Path, fineweb: Path, small_units: None, small_disk: Path
) -> None:
    (small_disk / "ballast").write_bytes(bytes(1_300_000))
    with pytest.raises(DiskFullError, match=r"the disk or the quota is full; what is done is kept in"):
        prepare(str(fineweb), out=small_disk / "d", tokenizer="byte", workers=2)
    (small_disk / "ballast").unlink()
    prepare(str(fineweb), out=small_disk / "d", tokenizer="byte", workers=2)
    assert open_dataset(str(small_disk / "d")).verify() > 0
    assert [path.name for path in small_disk.iterdir()] == ["d"]


def start(corpus: Path, out: Path, workers: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, str(DRIVER), str(corpus), str(out), str(workers)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def done_units(out: Path) -> dict[str, int]:
    """The records of units, with their times; the run that is looked at may be taking them away."""
    times: dict[str, int] = {}
    # Before 3.13 glob fails on a folder that goes while it begins.
    with contextlib.suppress(FileNotFoundError):
        for path in (out.with_name(f"{out.name}.partial") / "units").glob("*.json"):
            with contextlib.suppress(FileNotFoundError):
                times[path.name] = path.stat().st_mtime_ns
    return times


@pytest.mark.slow
def test_kills_lose_little_and_change_nothing(tmp_path: Path, fineweb: Path, small_units: None) -> None:
    """SIGKILL to the parent alone: its workers must end by themselves, and the next run goes on."""
    prepare(str(fineweb), out=tmp_path / "whole", tokenizer="byte", workers=1)
    out = tmp_path / "d"
    rng = random.Random(5)
    kills = 0
    while True:
        before = done_units(out)
        process = start(fineweb, out, 2)
        enough = len(before) + 2 + kills % 3
        while process.poll() is None and len(done_units(out)) < enough:
            time.sleep(0.002)
        time.sleep(rng.uniform(0, 0.02))
        if process.poll() is not None:
            break
        workers = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGKILL)
        process.wait()
        kills += 1
        wait_until(partial(have_ended, workers))
        # What an earlier run had finished was not done again.
        after = done_units(out)
        assert {name: after.get(name, time_) for name, time_ in before.items()} == before
    assert process.returncode == 0
    assert kills >= 3
    assert contents(out) == contents(tmp_path / "whole")
    assert not (tmp_path / "d.partial").exists()


def test_broken_input_leaves_nothing_in_the_way_of_skip_bad(
    tmp_path: Path, fineweb: Path, small_units: None
) -> None:
    table = pq.read_table(fineweb / "001_00000.parquet")
    texts = table["text"].to_pylist()
    broken = pa.array([text.encode() for text in texts[:-1]] + [b"ab\xff"], pa.binary()).view(pa.string())
    pq.write_table(pa.table({"text": broken}), fineweb / "001_00000.parquet", row_group_size=50)
    with pytest.raises(DataError, match="not UTF-8"):
        prepare(str(fineweb), out=tmp_path / "d", tokenizer="byte", workers=1)
    assert not (tmp_path / "d.partial").exists()
    report = prepare(str(fineweb), out=tmp_path / "d", tokenizer="byte", workers=1, skip_bad=True)
    assert (report.bad, report.documents) == (1, 1199)


# The peak is that of the process's own memory; what `resource` reports begins with its parent's.
ONE_LINE = """
import re, sys
from pathlib import Path
from gptwright.data.prepare import prepare
prepare(sys.argv[1], out=Path(sys.argv[2]), tokenizer="byte", workers=1)
print(int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) // 1024)
"""


@pytest.mark.slow
@pytest.mark.skipif(not psutil.LINUX, reason="the peak is read from /proc")
def test_a_file_of_one_endless_line_does_not_fill_the_memory(tmp_path: Path) -> None:
    most = []
    for words in (4_000_000, 8_000_000):
        line = tmp_path / f"{words}.txt"
        line.write_text(" ".join(map(str, range(words))))
        done = subprocess.run(
            [sys.executable, "-c", ONE_LINE, str(line), str(tmp_path / f"{words}")],
            capture_output=True,
            text=True,
            check=True,
        )
        most.append(int(done.stdout))
        tokens = sum(split.tokens for split in open_dataset(str(tmp_path / f"{words}")).splits.values())
        assert tokens >= line.stat().st_size
    # Held once as bytes and once as text, the rest of the longer line would take 60 MB.
    assert most[1] - most[0] < 35

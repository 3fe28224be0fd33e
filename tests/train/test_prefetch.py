import threading
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch

from gptwright.data.sampling import SamplingMode, WindowReader, WindowSampler
from gptwright.data.splits import Shard, TokenSplit, check_ids, map_shard
from gptwright.errors import DataError
from gptwright.hardware.detect import Device, find_device
from gptwright.train.prefetch import Prefetcher

MODES: list[SamplingMode] = ["random", "epoch"]


def sampler(mode: SamplingMode, *, limit: int | None = None) -> WindowSampler:
    shard = Shard(Path("train.bin"), np.arange(5000, dtype="<u2"))
    split = TokenSplit(name="train", shards=(shard,), vocab_size=5000, text_bytes=None)
    return WindowSampler(
        split, block_size=8, sequences_per_step=4, seed=3, mode=mode, vocab_limit=limit or 5000
    )


@pytest.mark.parametrize("mode", MODES)
def test_batches_are_those_of_the_sampler_in_any_order(mode: SamplingMode) -> None:
    with Prefetcher(sampler(mode), find_device("cpu"), last_step=100) as batches:
        for step in [0, 1, 2, 7, 8, 3, 99]:
            tokens, targets = batches.batch(step)
            x_NT, y_NT = sampler(mode).batch(step)
            assert torch.equal(tokens, torch.from_numpy(x_NT))
            assert torch.equal(targets, torch.from_numpy(y_NT))


def test_the_next_batch_is_read_while_this_one_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = sampler("random")
    seen: list[int] = []
    read = threading.Event()
    real = drawn.batch

    def batch(step: int) -> object:
        seen.append(step)
        read.set()
        return real(step)

    monkeypatch.setattr(drawn, "batch", batch)
    with Prefetcher(drawn, find_device("cpu"), last_step=3) as batches:
        batches.batch(0)
        deadline = time.monotonic() + 60
        while seen != [0, 1] and time.monotonic() < deadline:
            time.sleep(0.001)
        assert seen == [0, 1]
        batches.batch(1)
        batches.batch(2)
    # Nothing beyond the last step is read.
    assert seen == [0, 1, 2]


@pytest.mark.parametrize(
    ("kind", "can_pin", "wanted"),
    [("cuda", True, (True, True)), ("cuda", False, (False, True)), ("mps", False, (False, False))],
)
def test_a_batch_is_pinned_for_cuda_and_waited_for_elsewhere(
    monkeypatch: pytest.MonkeyPatch, kind: str, *, can_pin: bool, wanted: tuple[bool, bool]
) -> None:
    """An Apple GPU would read memory that a dropped batch has given back; CUDA looks whether it is pinned."""
    copied: list[tuple[bool, bool]] = []
    pinned: list[int] = []

    def pin(batch: torch.Tensor) -> torch.Tensor:
        if not can_pin:
            raise RuntimeError("CUDA error: out of memory")
        pinned.append(id(batch))
        return batch

    def to(batch: torch.Tensor, place: torch.device, *, non_blocking: bool) -> torch.Tensor:
        assert place.type == kind
        copied.append((id(batch) in pinned, non_blocking))
        return batch

    monkeypatch.setattr(torch.Tensor, "pin_memory", pin)
    monkeypatch.setattr(torch.Tensor, "to", to)
    card = Device(type=kind, index=None, name="card", memory_bytes=1, native_dtypes=("float32",), detail="")
    with Prefetcher(sampler("random"), card, last_step=2) as batches:
        batches.batch(0)
    assert copied == [wanted] * 2


def test_a_bad_id_stops_the_step_that_needs_it() -> None:
    drawn = sampler("random", limit=10)
    bad = pytest.raises(DataError, match="outside the vocabulary of 10")
    with Prefetcher(drawn, find_device("cpu"), last_step=9) as batches, bad:
        batches.batch(0)


@pytest.fixture
def large_shard(tmp_path: Path) -> Path:
    """256 MiB of zeros; a sparse file, whose pages are read like any other's."""
    path = tmp_path / "train.bin"
    with path.open("wb") as file:
        file.truncate(2**28)
    return path


@pytest.mark.skipif(not psutil.LINUX, reason="other systems count mapped pages otherwise")
@pytest.mark.parametrize("mode", MODES)
def test_reading_all_of_a_large_shard_keeps_memory_flat(large_shard: Path, mode: SamplingMode) -> None:
    split = TokenSplit(
        name="train",
        shards=(map_shard(large_shard, "uint16", expected_tokens=2**27),),
        vocab_size=10,
        text_bytes=None,
    )
    drawn = WindowSampler(split, block_size=1024, sequences_per_step=128, seed=1, mode=mode)
    process = psutil.Process()
    drawn.batch(0)
    before = process.memory_info().rss
    most = 0
    check_ids(split, 10)
    # Two thirds of the shard's pages, and more by what the system reads around them.
    for step in range(1, 700):
        drawn.batch(step)
        most = max(most, process.memory_info().rss - before)
    assert most < 100e6


def test_a_reader_gives_pages_back_and_still_reads_the_same(tmp_path: Path) -> None:
    ids = np.arange(60_000, dtype="<u2")
    ids.tofile(tmp_path / "a.bin")
    shard = map_shard(tmp_path / "a.bin", "uint16", expected_tokens=60_000)
    split = TokenSplit(name="train", shards=(shard,), vocab_size=60_000, text_bytes=None)
    reader = WindowReader(split, 4, 60_000)
    for start in range(0, 50_000, 7):
        x_NT, _ = reader.read(np.array([start]))
        assert x_NT.tolist() == [list(range(start, start + 4))]

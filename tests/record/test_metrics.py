"""The metrics file survives a kill at any byte, and resuming cuts it where the checkpoint was."""

import math
from pathlib import Path

import pytest

from gptwright.errors import DiskFullError, RunError
from gptwright.record.metrics import MetricsFile, read_metrics, require_length


def three_lines(path: Path) -> list[int]:
    """Writes three records; returns the file's length before each and at the end."""
    metrics = MetricsFile(path, keep_bytes=0)
    lengths = [metrics.length]
    for step in range(3):
        metrics.append("train", {"step": step, "loss": 1.5})
        lengths.append(metrics.length)
    metrics.close()
    return lengths


def test_a_file_torn_at_any_byte_reads_as_its_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    lengths = three_lines(path)
    content = path.read_bytes()
    for cut in range(len(content) + 1):
        path.write_bytes(content[:cut])
        whole = sum(1 for length in lengths[1:] if length <= cut)
        assert [record["step"] for record in read_metrics(path)] == list(range(whole))


def test_resuming_cuts_the_file_and_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    lengths = three_lines(path)
    path.write_bytes(path.read_bytes() + b'{"v": 1, "kind": "tra')
    metrics = MetricsFile(path, keep_bytes=lengths[2])
    metrics.append("train", {"step": 2, "loss": 2.5})
    metrics.close()
    assert [(r["step"], r["loss"]) for r in read_metrics(path)] == [(0, 1.5), (1, 1.5), (2, 2.5)]


def test_a_file_shorter_than_its_checkpoint_remembers_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    lengths = three_lines(path)
    with pytest.raises(
        RunError, match=f"has {lengths[3]} bytes, and the checkpoint was written when it had 9999"
    ):
        require_length(path, 9999)
    with pytest.raises(RunError, match="has 0 bytes"):
        require_length(tmp_path / "gone", 1)
    require_length(path, lengths[3])


def test_a_damaged_line_in_the_middle_is_named(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    three_lines(path)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + b"garbage\n" + lines[2])
    with pytest.raises(RunError, match=r"metrics\.jsonl:2 is not a record: b'garbage'"):
        read_metrics(path)


def test_what_is_no_number_is_stored_by_name(tmp_path: Path) -> None:
    metrics = MetricsFile(tmp_path / "m", keep_bytes=0)
    metrics.append("train", {"loss": math.nan, "grad_norm": math.inf, "lr": None})
    metrics.close()
    record = read_metrics(tmp_path / "m")[0]
    assert (record["v"], record["loss"], record["grad_norm"], record["lr"]) == (1, "nan", "inf", None)


def test_a_full_disk_tears_no_line(small_disk: Path) -> None:
    path = small_disk / "metrics.jsonl"
    metrics = MetricsFile(path, keep_bytes=0)
    written = 0

    def fill() -> None:
        nonlocal written
        while True:
            metrics.append("train", {"step": written, "padding": "x" * 5000})
            written += 1

    with pytest.raises(DiskFullError):
        fill()
    assert [record["step"] for record in read_metrics(path)] == list(range(written))
    assert path.read_bytes().endswith(b"\n")
    metrics.close()

"""Following a metrics file: only what is new, whole lines, and from the start where it was cut."""

import json
from pathlib import Path

from gptwright.record import follow
from gptwright.record.follow import Follower
from gptwright.record.metrics import MetricsFile


def steps(follower: Follower) -> tuple[list[int], bool]:
    news = follower.look()
    return [record["step"] for record in news.records()], news.restarted


def test_only_new_and_whole_lines_come(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    follower = Follower(path)
    assert steps(follower) == ([], False)
    metrics = MetricsFile(path, keep_bytes=0)
    metrics.append("train", {"step": 0})
    metrics.append("train", {"step": 1})
    metrics.close()
    assert steps(follower) == ([0, 1], False)
    assert steps(follower) == ([], False)
    with path.open("ab") as file:
        file.write(b'{"v": 1, "kind": "train", "ste')
    assert steps(follower) == ([], False)
    with path.open("ab") as file:
        file.write(b'p": 2}\n{"v": 1, "step": 3}\nno record\n[]\n\n{"step": 4}\n')
    assert steps(follower) == ([2, 3, 4], False)


def test_a_resumed_file_is_read_anew_even_where_it_has_grown_past_its_old_length(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    metrics = MetricsFile(path, keep_bytes=0)
    for step in range(10):
        metrics.append("train", {"step": step})
        if step == 4:
            kept = metrics.length
    follower = Follower(path)
    assert steps(follower) == (list(range(10)), False)
    metrics.close()
    metrics = MetricsFile(path, keep_bytes=kept)
    for step in range(5, 30):
        metrics.append("resume" if step == 5 else "train", {"step": step})
    assert steps(follower) == (list(range(30)), True)
    metrics.close()
    MetricsFile(path, keep_bytes=kept).close()
    assert steps(follower) == (list(range(5)), True)
    path.unlink()
    assert steps(follower) == ([], True)
    assert steps(follower) == ([], False)


def test_a_file_that_was_replaced_is_read_anew(tmp_path: Path) -> None:
    path, other = tmp_path / "metrics.jsonl", tmp_path / "other"
    path.write_text('{"step": 1}\n')
    follower = Follower(path)
    assert steps(follower) == ([1], False)
    other.write_text('{"step": 1}\n{"step": 2}\n')
    other.replace(path)
    assert steps(follower) == ([1, 2], True)


def test_a_backlog_comes_in_chunks_and_nothing_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    count = 2 * follow.CHUNK_BYTES // 60
    path.write_text("".join(json.dumps({"step": step, "fill": "x" * 40}) + "\n" for step in range(count)))
    follower = Follower(path)
    seen: list[int] = []
    looks = 0
    more = True
    while more:
        news = follower.look()
        seen += [record["step"] for record in news.records()]
        more = news.more
        looks += 1
    assert seen == list(range(count))
    assert looks >= 3


def test_a_file_without_lines_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b"\0" * (2 * follow.CHUNK_BYTES + 10) + b'\n{"step": 7}\n')
    follower = Follower(path)
    assert follower.look().more
    assert follower.look().more
    assert [record["step"] for record in follower.look().records()] == [7]

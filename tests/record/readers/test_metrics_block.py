"""Training lines of our own record that are read many at once say the same as line by line."""

import dataclasses
import json
import random
from collections.abc import Iterator

import numpy as np
import pytest

from gptwright.record.evidence import LogEvidence
from gptwright.record.readers import ours, read
from gptwright.record.readers.metrics_block import train_rows, train_runs


def lines(count: int, seed: int = 1) -> Iterator[str]:
    rng = random.Random(seed)
    for step in range(count):
        if step % 50 == 0:
            losses = {"train_loss": rng.random() + 3, "val_loss": rng.random() + 3}
            yield json.dumps({"v": 1, "kind": "eval", "time": 1.5, "step": step, **losses})
        record = {
            "v": 1, "kind": "train", "time": 1.7e9 + step, "step": step, "loss": rng.gauss(3, 0.1),
            "loss_mean": 3.0, "lr": rng.random() * 1e-3, "grad_norm": rng.choice([None, rng.random() * 2]),
            "seconds": rng.random(), "tokens_per_second": rng.random() * 1e5, "mfu": rng.random(),
            "tokens": step * 64,
        }  # fmt: skip
        yield json.dumps(record)


def read_by_line(data: bytes, monkeypatch: pytest.MonkeyPatch) -> LogEvidence:
    slow = dataclasses.replace(ours.METRICS, many=None)
    with monkeypatch.context() as patch:
        patch.setattr(
            read, "READERS", tuple(slow if reader is ours.METRICS else reader for reader in read.READERS)
        )
        return read.read_log(None, data=data)


def assert_same(one: LogEvidence, other: LogEvidence) -> None:
    assert (one.lines_read, one.lines_skipped) == (other.lines_read, other.lines_skipped)
    for table in ("train", "evals"):
        left, right = getattr(one, table), getattr(other, table)
        for column in dataclasses.fields(left):
            np.testing.assert_array_equal(getattr(left, column.name), getattr(right, column.name))


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text,
        lambda text: text[:-30],
        lambda text: text.replace('"loss": ', '"loss": "nan", "was": ', 1),
        lambda text: text.replace('"step": 77', '"step": tru'),
        lambda text: text.replace('"mfu": 0', '"mfu": 1e400, "a": 0', 3),
        lambda text: text.replace("\n", "\n\n", 40),
        lambda text: text.replace("}\n", "}", 3),
        lambda text: text.replace('"v": 1, "kind": "train"', '"v": 1, "kind": "strange"', 5),
        lambda text: text.replace('"step": 90', '"step": -90'),
        lambda text: text.replace('"seconds": ', '"seconds": true, "s": ', 2),
        lambda text: text.replace('"loss": ', '"loss": NaN, "was": ', 150),
        lambda text: text.replace('"grad_norm": null', '"grad_norm": 1'),
        lambda text: text.replace('"time": 1.5', '"device": "½ → 𝄞"', 2),
    ],
)
def test_many_lines_at_once_are_the_same_as_one_by_one(damage, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    data = damage("\n".join(lines(300)) + "\n").encode()
    assert_same(read.read_log(None, data=data), read_by_line(data, monkeypatch))


def test_a_damaged_line_leaves_those_around_it_to_be_read_at_once() -> None:
    text = "".join(line + "\n" for line in lines(400) if '"train"' in line)
    damaged = text.replace('"step": 210', '"step": 21O')
    read_at_once = [len(rows) for _, _, rows in train_runs(damaged)]
    assert 400 - 30 <= sum(read_at_once) < 400
    assert [(begin, end) for begin, end, _ in train_runs(text)] == [(0, len(text))]


def test_letters_of_more_than_one_byte_move_no_line() -> None:
    line = '{"v": 1, "kind": "train", "step": 1, "loss": 2.5}\n'
    text = '{"v": 1, "kind": "guard", "text": "½ → 𝄞"}\n' + line
    ((begin, end, rows),) = train_runs(text)
    assert text[begin:end] == line
    assert rows[0, 1] == 2.5


def test_rows_have_every_digit_and_null_is_not_a_number() -> None:
    text = '{"v": 1, "kind": "train", "step": 3, "loss": 0.1234567890123456, "mfu": null, "lr": 1e-05}\n'
    rows = train_rows(text.encode())
    assert rows is not None
    np.testing.assert_array_equal(rows, [[3, 0.1234567890123456, *[np.nan] * 3, 1e-05, np.nan]])


@pytest.mark.parametrize(
    "line",
    [
        "{",
        '{"step": 1, "loss": 2}',
        '{"kind": "trains", "step": 1, "loss": 2}',
        '{"kind": "train", "step": 1}',
        '{"kind": "train", "step": "1", "loss": 2}',
        '{"kind": "train", "step": 1, "loss": "nan"}',
        '{"kind": "train", "step": 1, "loss": null}',
    ],
)
def test_what_is_no_whole_training_line_is_left_alone(line: str) -> None:
    assert train_rows(f"{line}\n".encode()) is None

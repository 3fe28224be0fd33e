"""Near-duplicates are left out, the first is kept, and nothing else goes."""

import itertools
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gptwright.data import near, shards
from gptwright.data.near import near_duplicates
from gptwright.data.prepare import prepare
from gptwright.data.sketch import (
    PERMUTATIONS,
    Sketches,
    SketchWriter,
    band_keys,
    rows_a_band,
    signature_of,
)
from gptwright.data.sources import parquet
from gptwright.errors import DataError
from tests.conftest import Answer
from tests.data.test_at_scale import StoppedError, all_texts, stopped_after
from tests.data.test_prepare import contents, texts_of

THRESHOLD = 0.8
WORDS = [f"word{number}" for number in range(3000)]


def runs(text: str) -> set[tuple[str, ...]]:
    words = re.findall(r"\w+", text.lower())
    return {tuple(words[start : start + 5]) for start in range(len(words) - 4)}


def likeness(one: str, other: str) -> float:
    return len(runs(one) & runs(other)) / len(runs(one) | runs(other))


def edited(text: str, rng: np.random.Generator, words: int) -> str:
    """A copy with other layout in which some words are replaced, five-word runs with them."""
    parts = text.split()
    for place in rng.choice(len(parts), size=words, replace=False):
        parts[place] = str(rng.choice(WORDS))
    return ",\n".join(parts).upper()


def drop(folder: Path, units: list[list[str]], threshold: float, exact: Any = None) -> list[set[int]]:
    sketches = []
    for index, texts in enumerate(units):
        unit = Sketches(folder / f"{index}.signatures", folder / f"{index}.bands.npy")
        with SketchWriter(unit, threshold) as writer:
            for text in texts:
                writer.add(text)
            writer.finish()
        sketches.append(unit)
    nothing = [np.empty(0, dtype=np.int64) for _ in units]
    return [set(numbers.tolist()) for numbers in near_duplicates(sketches, exact or nothing, threshold)]


def test_signatures_estimate_the_likeness() -> None:
    rng = np.random.default_rng(3)
    for words in (0, 2, 5, 10, 20, 40, 80):
        text = " ".join(rng.choice(WORDS, size=400))
        copy = edited(text, rng, words)
        true = likeness(text, copy)
        estimated = float(np.mean(signature_of(text) == signature_of(copy)))
        # Four standard errors.
        assert abs(estimated - true) <= 4 * np.sqrt(true * (1 - true) / PERMUTATIONS) + 1e-9


@pytest.mark.parametrize("threshold", [0.5, 0.7, 0.8, 0.9, 1.0])
def test_a_pair_at_the_threshold_is_a_candidate(threshold: float) -> None:
    rows = rows_a_band(threshold)
    rng = np.random.default_rng(5)
    one = rng.integers(0, 2**16, size=(2000, PERMUTATIONS), dtype=np.uint16)
    agree = rng.random(one.shape) < threshold
    other = np.where(agree, one, rng.integers(0, 2**16, size=one.shape, dtype=np.uint16))
    found = (band_keys(one, rows) == band_keys(other, rows)).any(axis=1)
    assert found.mean() >= 0.98


@settings(max_examples=25, deadline=None)
@given(data=st.data(), rows=st.sampled_from([1, 3, 1000]), pairs=st.sampled_from([1, 1000]))
def test_no_two_documents_are_kept_that_are_alike(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, rows: int, pairs: int
) -> None:
    """Families of texts, edited in chains, in any order and any units."""
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    texts: list[str] = []
    for _ in range(data.draw(st.integers(1, 4))):
        text = " ".join(rng.choice(WORDS, size=60))
        for _ in range(data.draw(st.integers(1, 5))):
            texts.append(text)
            text = edited(text, rng, data.draw(st.integers(0, 3)))
    texts = data.draw(st.permutations(texts))
    cut = data.draw(st.integers(0, len(texts)))
    folder = tmp_path_factory.mktemp("sketches")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(near, "ROWS_AT_A_TIME", rows)
        patch.setattr(near, "_PAIRS_AT_A_TIME", pairs)
        first, second = drop(folder, [texts[:cut], texts[cut:]], THRESHOLD)
    dropped = first | {cut + number for number in second}
    assert [dropped] == drop(folder, [texts], THRESHOLD)
    signatures = np.stack([signature_of(text) for text in texts])
    keys = band_keys(signatures, rows_a_band(THRESHOLD))
    alike = {
        (a, b)
        for a, b in itertools.combinations(range(len(texts)), 2)
        if (keys[a] == keys[b]).any() and np.mean(signatures[a] == signatures[b]) >= THRESHOLD
    }
    kept = set(range(len(texts))) - dropped
    assert not [pair for pair in alike if set(pair) <= kept]
    # And what is left out is linked to something before it.
    for number in dropped:
        reached, todo = {number}, [number]
        while todo:
            here = todo.pop()
            new = {b if a == here else a for a, b in alike if here in (a, b)} - reached
            reached |= new
            todo += new
        assert min(reached) < number


def test_what_is_left_out_already_stands_for_nothing(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    text = " ".join(rng.choice(WORDS, size=60))
    gone = [np.array([0], dtype=np.int64)]
    assert drop(tmp_path, [[text, text, text + " more"]], 0.5) == [{1, 2}]
    assert drop(tmp_path, [[text, text, text + " more"]], 0.5, gone) == [{2}]


def test_texts_without_five_words_are_compared_whole(tmp_path: Path) -> None:
    texts = ["a b", "A, b!", "a c", "!!!", "???", "!!!", "", "a b c d e f"]
    assert drop(tmp_path, [texts], 0.5) == [{1, 5}]


@pytest.fixture
def copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Eight hundred documents in two files, every fourth an edited copy of one before it, 20 exact ones."""
    monkeypatch.setattr(parquet, "UNIT_BYTES", 60_000)
    monkeypatch.setattr(shards, "TOKENS_PER_SHARD", 30_000)
    rng = np.random.default_rng(17)
    texts = [" ".join(rng.choice(WORDS, size=rng.integers(60, 150))) for _ in range(800)]
    for number in range(3, 800, 4):
        texts[number] = edited(texts[number - 3], rng, 1)
    texts[780:800] = texts[100:120]
    folder = tmp_path / "copies"
    folder.mkdir()
    for number in range(2):
        table = pa.table({"text": texts[400 * number : 400 * number + 400]})
        pq.write_table(table, folder / f"{number}.parquet", row_group_size=50)
    return folder


def test_near_duplicates_never_are_on_two_sides(tmp_path: Path, copies: Path) -> None:
    report = prepare(str(copies), out=tmp_path / "d", tokenizer="byte", workers=1, near_duplicates=THRESHOLD)
    train, val = texts_of(tmp_path / "d", "train"), texts_of(tmp_path / "d", "val")
    texts = all_texts(copies)
    assert report.duplicates == 20
    # The copies are 0.84 alike in the shortest text; the estimate may miss a few.
    assert 185 <= report.near_duplicates <= 195
    assert len(train) + len(val) == 800 - 20 - report.near_duplicates
    # Nothing but copies was left out.
    assert {text for number, text in enumerate(texts[:780]) if number % 4 != 3} <= {*train, *val}
    known = [runs(text) for text in train]
    assert not any(len(runs(v) & t) / len(runs(v) | t) > 0.93 for v in val for t in known)
    plain = prepare(str(copies), out=tmp_path / "plain", tokenizer="byte", workers=1)
    assert (plain.duplicates, plain.near_duplicates) == (20, 0)


@pytest.mark.slow
def test_workers_and_kills_do_not_change_a_byte(
    tmp_path: Path, copies: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: dict[str, Any] = {"tokenizer": "byte", "near_duplicates": THRESHOLD}
    prepare(str(copies), out=tmp_path / "one", workers=1, **settings)
    prepare(str(copies), out=tmp_path / "three", workers=3, **settings)
    with monkeypatch.context() as patch:
        stopped_after(3, patch)
        with pytest.raises(StoppedError):
            prepare(str(copies), out=tmp_path / "stopped", workers=1, **settings)
    units = tmp_path / "stopped.partial" / "units"
    (units / "000001.signatures").write_bytes(b"")
    (units / "000002.bands.npy").unlink()
    prepare(str(copies), out=tmp_path / "stopped", workers=1, **settings)
    assert contents(tmp_path / "one") == contents(tmp_path / "three") == contents(tmp_path / "stopped")
    with pytest.raises(DataError, match=r"near_duplicates 0\.8 there, 0\.9 asked"):
        prepare(str(copies), out=tmp_path / "one", tokenizer="byte", near_duplicates=0.9)


def test_the_command_says_how_many_and_refuses_nonsense(gptwright: Any, tmp_path: Path, copies: Path) -> None:
    command = ("prepare", str(copies), "--tokenizer", "byte", "--workers", "1", "--out")
    answer: Answer = gptwright(*command, str(tmp_path / "d"), "--near-duplicates", "0.8")
    assert "left out: 20 duplicates of earlier documents" in answer.out
    assert re.search(r"left out: 1[89]\d near-duplicates of earlier documents", answer.out)
    for value in ("0.2", "80"):
        refused: Answer = gptwright(*command, str(tmp_path / "e"), "--near-duplicates", value)
        assert (refused.status, f"--near-duplicates is {value}" in refused.err) == (2, True)
    both: Answer = gptwright(*command, str(tmp_path / "e"), "--near-duplicates", "0.8", "--split", "nanogpt")
    assert "--near-duplicates and --split nanogpt do not go together" in both.err


def test_without_rensa_it_says_how_to_get_it(
    tmp_path: Path, copies: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "rensa", None)
    with pytest.raises(DataError, match=r"needs the package 'rensa'[\s\S]*pip install 'gptwright\[data\]'"):
        prepare(str(copies), out=tmp_path / "d", near_duplicates=0.8)

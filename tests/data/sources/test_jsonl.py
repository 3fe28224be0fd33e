import gzip
import json
from pathlib import Path

import pyarrow as pa
import pytest

from gptwright.data.sources import jsonl as jsonl_module
from gptwright.data.sources import open_corpus, parse_condition
from gptwright.data.sources.corpus import Tally
from gptwright.data.sources.records import RecordOptions
from gptwright.errors import DataError

TEXTS = [f"text number {number} é 😀\nnext line" for number in range(60)]


def read(path: Path, *where: str, skip_bad: bool = False) -> tuple[list[str], Tally]:
    tally = Tally()
    options = RecordOptions(where=tuple(map(parse_condition, where)))
    corpus = open_corpus(str(path), skip_bad=skip_bad, options=options)
    return [document.text for document in corpus.documents(tally)], tally


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "a.jsonl"
    rows = (json.dumps({"text": text, "score": n % 5}) for n, text in enumerate(TEXTS))
    path.write_text("\n".join(rows) + "\n")
    return path


@pytest.mark.parametrize("unit", [7, 64, 100, 1000, 10**9])
def test_every_line_is_read_once_wherever_the_ranges_end(
    lines: Path, unit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jsonl_module, "UNIT_BYTES", unit)
    texts, tally = read(lines)
    assert texts == TEXTS
    assert tally.documents == 60


def test_compressed_files_are_read(lines: Path, tmp_path: Path) -> None:
    content = lines.read_bytes()
    half = content.index(b"\n", len(content) // 2) + 1
    # Two members one after the other, as `cat a.gz b.gz` makes them.
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(content[:half]) + gzip.compress(content[half:]))
    assert read(tmp_path / "b.jsonl.gz")[0] == TEXTS
    codec = pa.Codec("zstd")
    (tmp_path / "c.jsonl.zst").write_bytes(
        codec.compress(content[:half], asbytes=True) + codec.compress(content[half:], asbytes=True)
    )
    assert read(tmp_path / "c.jsonl.zst")[0] == TEXTS
    assert read(tmp_path)[1].documents == 180


@pytest.mark.parametrize("name", ["b.jsonl.gz", "b.jsonl.zst"])
def test_a_truncated_compressed_file_is_named_or_read_as_far_as_it_goes(
    lines: Path, tmp_path: Path, name: str
) -> None:
    content = lines.read_bytes() * 50
    packed = (
        gzip.compress(content) if name.endswith("gz") else pa.Codec("zstd").compress(content, asbytes=True)
    )
    (tmp_path / name).write_bytes(packed[:-20])
    with pytest.raises(DataError, match=r"is truncated or damaged: "):
        read(tmp_path / name)
    texts, tally = read(tmp_path / name, skip_bad=True) if name.endswith("gz") else ([], None)
    assert tally is None or (0 < len(texts) < 3000 and tally.bad == 1)
    (tmp_path / name).write_bytes(b"this is not compressed")
    with pytest.raises(DataError, match=r"is truncated or damaged: "):
        read(tmp_path / name)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"text": "cut o', "not JSON: Unterminated string starting at"),
        (b"[1, 2]", "JSON of a list, not an object"),
        (b'{"text": 5, "score": 1}', "'text' is a int"),
        (b'{"text": "\\ud800", "score": 1}', "half of a surrogate pair in its text"),
        (b'{"text": "ab\xff", "score": 1}', "not UTF-8 at byte 12 of it (ff 22"),
        (b'{"text": "' + b"x" * 3000 + b'", "score": 1}', "longer than 0 MiB"),
    ],
)
@pytest.mark.parametrize("unit", [500, 10**9])
def test_a_broken_line_is_named_with_its_number_or_left_out(
    lines: Path, line: bytes, reason: str, unit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jsonl_module, "UNIT_BYTES", unit)
    monkeypatch.setattr(jsonl_module, "_LONGEST_LINE", 2000)
    content = lines.read_bytes().splitlines(keepends=True)
    content.insert(30, line + b"\n")
    lines.write_bytes(b"".join(content))
    offset = sum(map(len, content[:30]))
    with pytest.raises(DataError) as caught:
        read(lines)
    assert f"line 31 of {lines} (at byte {offset}) is {reason}" in str(caught.value)
    assert "--skip-bad" in str(caught.value)
    texts, tally = read(lines, skip_bad=True)
    assert texts == TEXTS
    assert tally.bad == 1
    assert tally.skipped[0].name == "a.jsonl line 31"
    assert reason in tally.skipped[0].reason


def test_wrong_columns_are_named(lines: Path) -> None:
    with lines.open("a") as file:
        file.write('{"content": "x"}\n')
    with pytest.raises(
        DataError, match=r"line 61 of .*a\.jsonl has no column 'text'; it has content[\s\S]*-column content"
    ):
        read(lines)
    with pytest.raises(DataError, match=r"has no column 'quality'; it has text, score"):
        read(lines, "quality>1")
    assert read(lines, skip_bad=True)[1].bad == 1


def test_conditions_choose_lines(lines: Path) -> None:
    texts, tally = read(lines, "score>=3")
    assert texts == [text for n, text in enumerate(TEXTS) if n % 5 >= 3]
    assert tally.filtered == 36
    with pytest.raises(DataError, match=r"--where score>high cannot be asked of .*: 'score' there is int"):
        read(lines, "score>high")


def test_blank_lines_and_empty_texts_are_no_documents(lines: Path) -> None:
    with lines.open("a") as file:
        file.write('\n{"text": "", "score": 1}\n{"text": null, "score": 1}\n')
    texts, tally = read(lines)
    assert texts == TEXTS
    assert tally.empty == 2


def test_an_empty_file_has_no_text(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").touch()
    with pytest.raises(DataError, match=r"the corpus a\.jsonl has no text\s+- a\.jsonl: empty"):
        read(tmp_path / "a.jsonl")


def test_plain_text_has_no_columns(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("text")
    with pytest.raises(DataError, match=r"--text-column and --where do not go with"):
        read(tmp_path / "a.txt", "score>1")

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gptwright.data.sources import open_corpus, parse_condition
from gptwright.data.sources import parquet as parquet_module
from gptwright.data.sources.corpus import Document, Tally
from gptwright.data.sources.records import RecordOptions
from gptwright.errors import DataError


def read(
    path: Path, *where: str, text_column: str = "text", skip_bad: bool = False
) -> tuple[list[Document], Tally]:
    tally = Tally()
    options = RecordOptions(text_column, tuple(map(parse_condition, where)))
    corpus = open_corpus(str(path), skip_bad=skip_bad, options=options)
    return list(corpus.documents(tally)), tally


def test_every_record_is_a_document_in_the_order_of_files_and_rows(fineweb: Path) -> None:
    documents, tally = read(fineweb)
    tables = [pq.read_table(path) for path in sorted(fineweb.iterdir())]
    assert [d.text for d in documents] == [t for table in tables for t in table["text"].to_pylist()]
    assert tally.documents == 1200
    assert tally.bytes == sum(len(document.text.encode()) for document in documents)
    assert {document.name for document in documents} == {"000_00000.parquet", "001_00000.parquet"}


def test_units_are_neighbouring_row_groups_and_join_to_the_whole(
    fineweb: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, _ = read(fineweb)
    monkeypatch.setattr(parquet_module, "UNIT_BYTES", 60_000)
    corpus = open_corpus(str(fineweb))
    units = corpus.units(Tally())
    assert len(units) > 5
    assert [d for unit in units for d in unit.read(Tally())] == whole


@pytest.mark.parametrize(
    ("where", "kept"),
    [
        (["int_score>=4"], 800),
        (["int_score>=4", "language==en"], 720),
        (["language != en"], 120),
        (["token_count<10"], None),
        (["score > 4.9"], 36),
    ],
)
def test_conditions_choose_records(fineweb: Path, where: list[str], kept: int | None) -> None:
    documents, tally = read(fineweb, *where)
    assert kept is None or len(documents) == kept
    assert tally.documents + tally.filtered == 1200
    assert 0 < len(documents) < 1200


def test_conditions_that_nothing_fulfils_or_that_mean_nothing(fineweb: Path) -> None:
    with pytest.raises(DataError, match=r"has no text\s+- 1,200 records left out by --where"):
        read(fineweb, "int_score>9")
    with pytest.raises(DataError, match=r"--where 'int_score' is not a condition"):
        read(fineweb, "int_score")
    with pytest.raises(DataError, match=r"--where url>3 cannot be asked of .*: 'url' there is string"):
        read(fineweb, "url>3")
    with pytest.raises(DataError, match=r"has no column 'quality'; it has text, id, url"):
        read(fineweb, "quality>3")


def test_another_column_of_text(fineweb: Path) -> None:
    documents, _ = read(fineweb, text_column="url")
    assert documents[3].text == "https://example.org/3"
    with pytest.raises(DataError, match=r"has no column 'content'; it has text, id[\s\S]*--text-column NAME"):
        read(fineweb, text_column="content")
    with pytest.raises(DataError, match="--text-column text"):
        read(fineweb, text_column="texts")
    with pytest.raises(DataError, match=r"column 'score' of .* holds double, not text"):
        read(fineweb, text_column="score")


def test_a_truncated_file_is_named_or_left_out(fineweb: Path) -> None:
    path = fineweb / "001_00000.parquet"
    path.write_bytes(path.read_bytes()[:-2000])
    with pytest.raises(DataError, match=r"001_00000\.parquet is truncated or damaged: .*magic bytes"):
        read(fineweb)
    documents, tally = read(fineweb, skip_bad=True)
    assert len(documents) == 600
    assert (tally.bad, tally.skipped[0].name) == (1, "001_00000.parquet")


def test_a_damaged_page_is_named_or_left_out(fineweb: Path) -> None:
    path = fineweb / "000_00000.parquet"
    content = bytearray(path.read_bytes())
    start = pq.ParquetFile(path).metadata.row_group(6).column(0).data_page_offset
    content[start : start + 40] = bytes(40)
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"000_00000\.parquet is truncated or damaged"):
        read(fineweb)
    documents, tally = read(fineweb, skip_bad=True)
    assert 600 <= len(documents) < 1200
    assert tally.bad == 1
    assert "row groups" in tally.skipped[0].name


def test_empty_and_missing_texts_are_counted(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": ["a", "", None, "b"]}), tmp_path / "a.parquet")
    documents, tally = read(tmp_path / "a.parquet")
    assert [document.text for document in documents] == ["a", "b"]
    assert tally.empty == 2
    pq.write_table(pa.table({"text": pa.array([], pa.string())}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"has no text\s+- a\.parquet: no records"):
        read(tmp_path / "a.parquet")
    (tmp_path / "a.parquet").write_bytes(b"")
    with pytest.raises(DataError, match=r"is truncated or damaged: .*0 bytes"):
        read(tmp_path / "a.parquet")


def test_a_text_that_is_not_utf8_is_named_or_left_out(tmp_path: Path) -> None:
    broken = pa.array([b"good", b"ab\xff", b"fine"], pa.binary()).view(pa.string())
    pq.write_table(pa.table({"text": broken}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"holds a text that is not UTF-8: invalid bytes ff at byte 2"):
        read(tmp_path / "a.parquet")
    documents, tally = read(tmp_path / "a.parquet", skip_bad=True)
    assert [document.text for document in documents] == ["good", "fine"]
    assert tally.skipped[0].reason == "not UTF-8 at byte 2 (ff)"


def test_a_readme_beside_the_data_is_not_data(fineweb: Path) -> None:
    (fineweb / "README.md").write_text("what this is")
    (fineweb / "more.jsonl").write_text('{"text": "x"}\n')
    documents, _ = read(fineweb)
    assert len(documents) == 1200


def test_one_large_row_group_is_one_unit_and_streams(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    texts = [str(value) for value in rng.integers(10**9, size=5000)]
    pq.write_table(pa.table({"text": texts}), tmp_path / "a.parquet", row_group_size=5000)
    monkeypatch.setattr(parquet_module, "UNIT_BYTES", 100)
    corpus = open_corpus(str(tmp_path / "a.parquet"))
    (unit,) = corpus.units(Tally())
    assert [document.text for document in unit.read(Tally())] == texts

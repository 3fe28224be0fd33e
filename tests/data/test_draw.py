import hashlib
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gptwright.data import draw as draw_module
from gptwright.data.draw import PIECE_ROW, Draw, Table, exact_duplicates, rows_of
from gptwright.data.pieces import content_hash
from gptwright.errors import DataError

UNITS = st.lists(st.lists(st.text(min_size=1, max_size=4), max_size=9), min_size=1, max_size=4)


def drawing(folder: Path, units: list[list[str]]) -> Draw:
    """A draw over documents that are one piece each."""
    tables = []
    for index, texts in enumerate(units):
        keys = rows_of([content_hash(text.encode()) for text in texts])
        rows = np.empty(len(texts), dtype=PIECE_ROW)
        rows["high"], rows["low"] = keys["high"], keys["low"]
        rows["bytes"] = [len(text.encode()) for text in texts]
        rows["document"] = range(len(texts))
        table = Table(folder / f"{index}.documents.npy", folder / f"{index}.pieces.npy")
        np.save(table.documents, keys)
        np.save(table.pieces, rows)
        tables.append(table)
    return Draw(tables, exact_duplicates(tables, whole=True))


def chosen(folder: Path, units: list[list[str]], fraction: float) -> set[str]:
    limit = drawing(folder, units).limit(fraction)
    return {text for texts in units for text in texts if content_hash(text.encode()) <= limit}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tables")


@settings(max_examples=40)
@given(units=UNITS, rows=st.sampled_from([1, 2, 5, 1000]))
def test_of_equal_documents_the_first_is_kept(folder: Path, units: list[list[str]], rows: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(draw_module, "ROWS_AT_A_TIME", rows)
        found = drawing(folder, units)
        dropped = [set(numbers.tolist()) for numbers in found.dropped]
    seen: Counter[str] = Counter()
    for unit, texts in enumerate(units):
        for number, text in enumerate(texts):
            assert (number in dropped[unit]) == (seen[text] > 0)
            seen[text] += 1
    assert found.kept_bytes == sum(len(text.encode()) for text in seen)


@settings(max_examples=40)
@given(
    units=UNITS.filter(lambda units: len({text for texts in units for text in texts}) > 1),
    fraction=st.floats(0, 1),
    data=st.data(),
)
def test_the_draw_depends_on_content_alone(
    folder: Path, units: list[list[str]], fraction: float, data: st.DataObject
) -> None:
    val = chosen(folder, units, fraction)
    everything = {text for texts in units for text in texts}
    assert val
    assert everything - val
    flat = data.draw(st.permutations([text for texts in units for text in texts]))
    cut = data.draw(st.integers(0, len(flat)))
    assert chosen(folder, [list(flat[:cut]), list(flat[cut:])], fraction) == val
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(draw_module, "ROWS_AT_A_TIME", 1)
        assert chosen(folder, units, fraction) == val


def test_the_draw_takes_what_was_asked(folder: Path) -> None:
    texts = [hashlib.md5(str(number).encode()).hexdigest() for number in range(1000)]
    assert len(chosen(folder, [texts[:300], texts[300:]], 0.1)) == pytest.approx(100, abs=2)


@pytest.mark.parametrize("texts", [["alone"], ["same", "same"]])
def test_one_text_cannot_be_split(folder: Path, texts: list[str]) -> None:
    with pytest.raises(DataError, match=r"of which 1 differ[\s\S]*--split nanogpt"):
        drawing(folder, [texts]).limit(0.1)

"""Small datasets, made as a person would make them."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gptwright.data.dataset import TokenDataset, open_dataset
from gptwright.data.prepare import prepare

SHAKESPEARE = Path(__file__).resolve().parents[3] / "shared" / "data" / "tinyshakespeare.txt"


@pytest.fixture
def shakespeare() -> Path:
    if not SHAKESPEARE.is_file():
        pytest.skip("needs ../shared/data/tinyshakespeare.txt")
    return SHAKESPEARE


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Thirty files in several scripts, some 80 kB."""
    folder = tmp_path / "corpus"
    folder.mkdir()
    rng = np.random.default_rng(7)
    words = ["the", "cat", "नमस्ते", "你好", "世界", "こんにちは", "😀", "sat\r\non", "mat"]
    for number in range(30):
        lines = (" ".join(rng.choice(words, size=9)) for _ in range(40))
        (folder / f"{number:02d}.txt").write_bytes((f"file {number}\n\n" + "\n".join(lines)).encode())
    return folder


@pytest.fixture
def prepared(tmp_path: Path, corpus: Path) -> TokenDataset:
    """That corpus as a byte dataset under `tmp_path/data/mine`."""
    prepare(str(corpus), out=tmp_path / "data" / "mine", tokenizer="byte")
    return open_dataset("mine", root=tmp_path)


@pytest.fixture
def nanogpt_folder(tmp_path: Path) -> Callable[..., Path]:
    """Makes a folder of nanoGPT's: `nanogpt_folder(train=[...], val=[...], meta=bytes)`."""

    def make(train: list[int], val: list[int], meta: bytes | None = None) -> Path:
        folder = tmp_path / "data" / "theirs"
        folder.mkdir(parents=True)
        np.array(train, dtype="<u2").tofile(folder / "train.bin")
        np.array(val, dtype="<u2").tofile(folder / "val.bin")
        if meta is not None:
            (folder / "meta.pkl").write_bytes(meta)
        return folder

    return make


def sentences(rng: np.random.Generator, words: int) -> str:
    """Some text that no other document has."""
    known = ["the", "reader", "of", "a", "corpus", "learns", "नमस्ते", "你好", "from", "its", "words", "é"]
    return " ".join(rng.choice(known, size=words).tolist()) + f" {rng.integers(10**12)}."


@pytest.fixture
def fineweb(tmp_path: Path, written_fineweb: Path) -> Path:
    """A copy of those files, which a test may change."""
    return shutil.copytree(written_fineweb, tmp_path / "fineweb")


@pytest.fixture(scope="session")
def written_fineweb(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two Parquet files with FineWeb-Edu's columns: 1,200 documents, some 500 kB, a few of them twice."""
    folder = tmp_path_factory.mktemp("written") / "fineweb"
    folder.mkdir()
    rng = np.random.default_rng(11)
    texts = [sentences(rng, int(rng.integers(5, 120))) for _ in range(1200)]
    texts[700:720] = texts[:20]
    for number in range(2):
        rows = range(600 * number, 600 * number + 600)
        table = pa.table(
            {
                "text": [texts[row] for row in rows],
                "id": [f"<urn:uuid:{row}>" for row in rows],
                "url": [f"https://example.org/{row}" for row in rows],
                "language": ["en" if row % 10 else "fr" for row in rows],
                "language_score": [0.65 + row / 4000 for row in rows],
                "token_count": [len(texts[row].split()) for row in rows],
                "score": [2.5 + (row % 100) / 40 for row in rows],
                "int_score": [3 + row % 3 for row in rows],
            }
        )
        pq.write_table(table, folder / f"{number:03d}_00000.parquet", row_group_size=50)
    return folder

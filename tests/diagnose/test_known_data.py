"""What the name of nanoGPT's own data, and the printed size of a model, tell without being stated."""

from pathlib import Path

import pytest

from gptwright.diagnose.reading import Reading, read_run
from gptwright.record.open_run import open_run

CONFIG = """\
dataset = '{dataset}'
n_layer = 6
n_head = 6
n_embd = 384
block_size = 256
batch_size = 64
gradient_accumulation_steps = 1
max_iters = 5000
"""
LOG = """\
tokens per iteration will be: 16,384
{header}
step 0: train loss {first}, val loss {first}
iter 0: loss {first}, time 3000.00ms, mfu -100.00%
iter 10: loss 3.2, time 30.00ms, mfu 10.00%
step 5000: train loss 0.6200, val loss 1.7000
iter 5000: loss 0.8, time 3030.00ms, mfu 9.00%
"""


def reading(folder: Path, *, dataset: str, header: str, first: str = "4.2800") -> Reading:
    folder.mkdir()
    (folder / "config.py").write_text(CONFIG.format(dataset=dataset))
    (folder / "log.txt").write_text(LOG.format(header=header, first=first))
    return read_run(open_run(str(folder)))


@pytest.mark.parametrize(
    "header", ["number of parameters: 10.65M", "found vocab_size = 65 (inside data/x/meta.pkl)"]
)
def test_passes_over_nanogpts_own_data_are_counted(tmp_path: Path, header: str) -> None:
    read = reading(tmp_path / "run", dataset="shakespeare_char", header=header)
    assert read.progress.epochs is not None
    assert read.progress.epochs.number == pytest.approx(81.6, rel=1e-3)
    unique = read.settings.get("train_tokens")
    assert unique is not None
    assert (unique.value, unique.source) == (1_003_854, "table:nanoGPT data")


@pytest.mark.parametrize(
    ("dataset", "header"),
    [
        # Another text under the same name has another vocabulary.
        ("shakespeare_char", "found vocab_size = 97 (inside data/shakespeare_char/meta.pkl)"),
        ("shakespeare_char", "number of parameters: 29.94M"),
        ("my_novel", "number of parameters: 10.65M"),
    ],
)
def test_other_data_has_no_known_size(tmp_path: Path, dataset: str, header: str) -> None:
    read = reading(tmp_path / "run", dataset=dataset, header=header, first="10.8")
    assert read.progress.epochs is None


@pytest.mark.parametrize(
    ("header", "rows"),
    [
        ("number of parameters: 10.65M", 65),
        ("number of parameters: 29.94M", 50_304),
        ("number of parameters: 29.92M", 50_257),
        ("number of parameters: 12.00M", None),
    ],
)
def test_the_printed_size_tells_a_usual_vocabulary(tmp_path: Path, header: str, rows: int | None) -> None:
    read = reading(tmp_path / "run", dataset="my_novel", header=header)
    assert (read.vocab_size.value if read.vocab_size is not None else None) == rows


def test_the_folder_of_the_vocabulary_names_the_data_where_nothing_else_does(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    header = "found vocab_size = 65 (inside data/shakespeare_char/meta.pkl)\nnumber of parameters: 10.65M"
    log.write_text(LOG.format(header=header, first="4.2800"))
    read = read_run(open_run(str(log)))
    assert read.progress.epochs is not None
    assert read.progress.epochs.number == pytest.approx(81.6, rel=1e-3)
    stated = read_run(open_run(str(log), {"dataset": "my_novel"}))
    assert stated.settings.word("dataset") == "my_novel"
    assert stated.progress.epochs is None

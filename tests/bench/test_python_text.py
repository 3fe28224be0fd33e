"""A text that every machine has: installed source, a document a file, until there is enough."""

import json
from pathlib import Path

from gptwright.bench.python_text import write_python_text


def test_installed_source_is_written_until_there_is_enough(tmp_path: Path) -> None:
    written = write_python_text(tmp_path / "a.jsonl", most_bytes=2_000_000)
    assert 2_000_000 <= written < 2_600_000
    texts = [json.loads(line)["text"] for line in (tmp_path / "a.jsonl").read_text("utf-8").splitlines()]
    assert sum(len(text.encode()) for text in texts) == written
    assert any("import " in text for text in texts)
    write_python_text(tmp_path / "b.jsonl", most_bytes=2_000_000)
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()

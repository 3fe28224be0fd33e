"""A text of some size that every machine with Python and torch has, without network: installed source code.

The standard library alone is 13 MB, which a GPU passes over several times within a minute. With the packages
beside it there are a hundred and more; files are taken in the order of a hash of their paths until there is
enough, so that every package has its share. What is installed differs between machines, so losses on it can
be compared within one run alone.
"""

import hashlib
import json
import os
import sysconfig
from collections.abc import Iterator
from pathlib import Path

# Long tables and files that are broken on purpose.
LEFT_OUT = frozenset({"__pycache__", "test", "tests", "idle_test", "testing"})
# Beyond this a file is generated.
MOST_FILE_BYTES = 500_000


def write_python_text(path: Path, *, most_bytes: int) -> int:
    """Writes installed Python source as JSONL, a document a file, until there is enough.

    Args:
        path: the file to write.
        most_bytes: of source.

    Returns:
        The bytes of source that were written.
    """
    written = 0
    with path.open("w", encoding="utf-8") as out:
        for file in sorted(_source_files(), key=_place):
            try:
                text = file.read_text("utf-8")
            except (OSError, UnicodeDecodeError):
                continue
            if not text.strip() or len(text) > MOST_FILE_BYTES:
                continue
            out.write(json.dumps({"text": text}) + "\n")
            written += len(text.encode("utf-8"))
            if written >= most_bytes:
                break
    return written


def _source_files() -> Iterator[Path]:
    seen = set()
    for root in (sysconfig.get_path(name) for name in ("stdlib", "platlib", "purelib")):
        for folder, subfolders, names in os.walk(root):
            subfolders[:] = [name for name in subfolders if name not in LEFT_OUT]
            for name in names:
                file = Path(folder, name)
                if name.endswith(".py") and file not in seen:
                    seen.add(file)
                    yield file


def _place(file: Path) -> bytes:
    return hashlib.sha256(str(file).encode("utf-8", "surrogateescape")).digest()

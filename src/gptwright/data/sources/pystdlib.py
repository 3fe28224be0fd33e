"""The source of the running Python's standard library: some 13 MB of real text that is always there.

It needs no network. Packages installed beside it and its test suites are left out, the latter because they
hold long tables and deliberately broken files. It differs between Python versions, so the manifest's hash
tells which one it was.
"""

import os
import sysconfig
from pathlib import Path

from gptwright.data.sources.corpus import Corpus
from gptwright.data.sources.text import TextReader
from gptwright.errors import DataError

_LEFT_OUT = frozenset({"site-packages", "dist-packages", "__pycache__", "test", "tests", "idle_test"})


def pystdlib_corpus() -> Corpus:
    """The standard library's .py files, in the order of their paths; files that are not UTF-8 are skipped."""
    root = Path(sysconfig.get_path("stdlib"))
    files: list[Path] = []
    for folder, subfolders, names in os.walk(root):
        # Pruned here, because site-packages alone may hold a hundred thousand files.
        subfolders[:] = [name for name in subfolders if name not in _LEFT_OUT]
        files += [Path(folder, name) for name in names if name.endswith(".py")]
    files.sort(key=lambda path: path.relative_to(root).as_posix())
    if not files:
        raise DataError(
            f"this Python has no standard library source: nothing ends in .py under {root}",
            why="some builds keep only compiled files, or a zip",
            fix="use another corpus, such as a text file of your own",
        )
    return Corpus(name="pystdlib", root=root, files=tuple(files), skip_bad=True, reader=TextReader())

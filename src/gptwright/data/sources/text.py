"""A text file, or a folder of them.

A folder is searched for *.txt and *.md at any depth and read in the order of the relative paths, so that a
corpus is the same on every file system. A single file may have any name.
"""

from collections import Counter
from pathlib import Path

from gptwright.data.sources.corpus import Corpus
from gptwright.errors import DataError

_SUFFIXES = (".txt", ".md")


def text_corpus(path: Path, *, skip_bad: bool) -> Corpus:
    """The corpus in a file or folder.

    Raises:
        DataError: the folder holds no text files; what it does hold is said.
    """
    if not path.is_dir():
        return Corpus(name=path.name, root=path.parent, files=(path,), skip_bad=skip_bad)
    everything = [found for found in path.rglob("*") if found.is_file()]
    files = sorted(
        (found for found in everything if found.suffix.lower() in _SUFFIXES),
        key=lambda found: found.relative_to(path).as_posix(),
    )
    if not files:
        raise DataError(
            f"the folder {path} has no .txt or .md file, at any depth; it holds {_summary(everything)}",
            why="only those are read from a folder as text",
            fix="give one file of it, whatever its name, or rename the text files to .txt",
        )
    return Corpus(name=path.resolve().name, root=path, files=tuple(files), skip_bad=skip_bad)


def _summary(files: list[Path]) -> str:
    if not files:
        return "no files"
    kinds = Counter(file.suffix or "no suffix" for file in files)
    return ", ".join(f"{number} × {kind}" for kind, number in kinds.most_common(5))

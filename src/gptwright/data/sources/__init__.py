"""Where text comes from: files and folders, and corpora known by name."""

import difflib
from pathlib import Path

from gptwright.data.sources.corpus import Corpus
from gptwright.data.sources.pystdlib import pystdlib_corpus
from gptwright.data.sources.shakespeare import shakespeare_corpus
from gptwright.data.sources.text import text_corpus
from gptwright.errors import DataError

NAMED_CORPORA = {
    "shakespeare": "Tiny Shakespeare, 1.1 MB, by download or --from FILE",
    "pystdlib": "the source of this Python's standard library, always there",
}


def open_corpus(source: str, *, from_file: Path | None = None, skip_bad: bool = False) -> Corpus:
    """The corpus that `prepare SOURCE` means: a name, or the path of a text file or folder.

    Args:
        source: a name in `NAMED_CORPORA`, or a path.
        from_file: a copy of the named corpus; only `shakespeare` takes one.
        skip_bad: leave out files that are not UTF-8, instead of stopping at them.

    Raises:
        DataError: there is no such corpus.
    """
    if from_file is not None and source != "shakespeare":
        raise DataError(
            f"--from {from_file} does not go with the source '{source}'",
            why="only shakespeare is a known text that can come from a file",
            fix=f"gptwright prepare {from_file} --out DIR",
        )
    if source == "shakespeare":
        return shakespeare_corpus(from_file)
    if source == "pystdlib":
        return pystdlib_corpus()
    path = Path(source)
    if path.exists():
        return text_corpus(path, skip_bad=skip_bad)
    beside = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
    nearest = difflib.get_close_matches(path.name, [*NAMED_CORPORA, *beside], n=1)
    raise DataError(
        f"there is no file, folder or named corpus '{source}'",
        why=f"named corpora are {', '.join(NAMED_CORPORA)}; anything else is a path",
        fix=f"did you mean '{nearest[0]}'?" if nearest else "give the path of a text file or folder",
    )

"""Where text comes from: files and folders, Hugging Face repositories, and corpora known by name."""

import difflib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from gptwright.data.sources.corpus import Corpus, Reader, files_below
from gptwright.data.sources.hub import HUB_PREFIX, fetch_repository
from gptwright.data.sources.jsonl import JSONL_SUFFIXES, JsonlReader
from gptwright.data.sources.parquet import PARQUET_SUFFIXES, ParquetReader
from gptwright.data.sources.pystdlib import pystdlib_corpus
from gptwright.data.sources.records import RecordOptions, parse_condition
from gptwright.data.sources.shakespeare import shakespeare_corpus
from gptwright.data.sources.text import TEXT_SUFFIXES, summary_of, text_corpus
from gptwright.errors import DataError, typed

NAMED_CORPORA = {
    "shakespeare": "Tiny Shakespeare, 1.1 MB, by download or --from FILE",
    "pystdlib": "the source of this Python's standard library, always there",
}


def open_corpus(
    source: str,
    *,
    from_file: Path | None = None,
    skip_bad: bool = False,
    options: RecordOptions | None = None,
    say: Callable[[str], None] | None = None,
) -> Corpus:
    """The corpus that `prepare SOURCE` means: a name, a path, or `hf:OWNER/NAME`.

    Args:
        source: a name in `NAMED_CORPORA`, the path of a file or folder, or a repository.
        from_file: a copy of the named corpus; only `shakespeare` takes one.
        skip_bad: leave out what is broken, instead of stopping at it.
        options: which column holds the text and which records are kept; only for Parquet and JSONL.
        say: told in a sentence what is about to be downloaded.

    Raises:
        DataError: there is no such corpus.
    """
    if from_file is not None and source != "shakespeare":
        raise DataError(
            f"--from {from_file} does not go with the source '{source}'",
            why="only shakespeare is a known text that can come from a file",
            fix=f"gptwright prepare {typed(from_file)} --out DIR",
        )
    corpus = _open(source, from_file, skip_bad, options or RecordOptions(), say or (lambda _: None))
    if options not in (None, RecordOptions()) and corpus.reader.kind == "text":
        raise DataError(
            f"--text-column and --where do not go with the source '{source}': it is plain text",
            why="only Parquet and JSONL records have columns",
            fix="leave them out",
        )
    return corpus


def _open(
    source: str, from_file: Path | None, skip_bad: bool, options: RecordOptions, say: Callable[[str], None]
) -> Corpus:
    if source == "shakespeare":
        return shakespeare_corpus(from_file)
    if source == "pystdlib":
        return pystdlib_corpus()
    if source.startswith(HUB_PREFIX):
        found = fetch_repository(source, (*PARQUET_SUFFIXES, *JSONL_SUFFIXES, *TEXT_SUFFIXES), say)
        return _in_folder(found.root, list(found.files), options, skip_bad=skip_bad, name=source)
    if "://" in source:
        raise _address(source)
    path = Path(source)
    if path.is_dir():
        everything = sorted(
            files_below(path),
            key=lambda found: found.relative_to(path).as_posix(),
        )
        corpus = _in_folder(path, everything, options, skip_bad=skip_bad, name=path.resolve().name)
        _say_what_is_not_read(path, everything, corpus, say)
        return corpus
    if path.exists():
        return _of_kind(path, [path], options, skip_bad=skip_bad)
    beside = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
    nearest = difflib.get_close_matches(path.name, [*NAMED_CORPORA, *beside], n=1)
    raise DataError(
        f"there is no file, folder or named corpus '{source}'",
        why=f"named corpora are {', '.join(NAMED_CORPORA)}, and hf:OWNER/NAME; anything else is a path",
        fix=f"did you mean '{nearest[0]}'?" if nearest else "give the path of a text file or folder",
    )


def _address(source: str) -> DataError:
    """Why nothing is read from an address, and what to type instead."""
    _, at_hub, repository = source.partition("huggingface.co/datasets/")
    name = "/".join(repository.split("/")[:2])
    return DataError(
        f"{source} is an address, and a corpus is read from files",
        why=f"only {HUB_PREFIX}OWNER/NAME is fetched, with its size said before",
        fix=f"gptwright prepare {typed(HUB_PREFIX + name)} --out DIR"
        if at_hub
        else f"curl -LO {typed(source)}, then its file",
    )


def _in_folder(
    root: Path, everything: list[Path], options: RecordOptions, *, skip_bad: bool, name: str
) -> Corpus:
    """Parquet if there is any, else JSONL, else text: a README beside the data is not data."""
    for suffixes in (PARQUET_SUFFIXES, JSONL_SUFFIXES):
        chosen = [path for path in everything if path.name.lower().endswith(suffixes)]
        if chosen:
            corpus = _of_kind(root, chosen, options, skip_bad=skip_bad)
            return replace(corpus, name=name)
    return text_corpus(root, skip_bad=skip_bad)


def _say_what_is_not_read(
    folder: Path, everything: list[Path], corpus: Corpus, say: Callable[[str], None]
) -> None:
    """Whoever has half of his texts as .pdf should know that they are not in the dataset."""
    read = set(corpus.files)
    others = [path for path in everything if path not in read]
    if others:
        kinds = {"parquet": PARQUET_SUFFIXES, "jsonl": JSONL_SUFFIXES, "text": TEXT_SUFFIXES}
        only = ", ".join(kinds[corpus.reader.kind])
        say(f"not read in {folder}: {summary_of(others)}; only its {only} files are")


def _of_kind(path: Path, files: list[Path], options: RecordOptions, *, skip_bad: bool) -> Corpus:
    reader: Reader
    if files[0].name.lower().endswith(PARQUET_SUFFIXES):
        reader = ParquetReader(options)
    elif files[0].name.lower().endswith(JSONL_SUFFIXES):
        reader = JsonlReader(options)
    else:
        return text_corpus(path, skip_bad=skip_bad)
    root = path if path.is_dir() else path.parent
    return Corpus(name=path.resolve().name, root=root, files=tuple(files), skip_bad=skip_bad, reader=reader)


__all__ = ["NAMED_CORPORA", "RecordOptions", "open_corpus", "parse_condition"]

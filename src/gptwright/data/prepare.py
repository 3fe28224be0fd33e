"""Turns a corpus into a token dataset: shards of ids, a tokenizer and a manifest.

The corpus is read twice and never held, by several processes: once to count and hash it, which finds
duplicates (and near-duplicates, `near`) and draws the validation split by content (`survey`, `draw`), and
once to encode it (`encode`), while the parent puts the shards together (`assemble`). What is done lies beside
the target (`work`), and the same command goes on from there. Only nanoGPT's contiguous split holds the text
(`contiguous`).

Memory stays below 1 GiB and 300 MB a worker, whatever the size of the corpus.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import gptwright
from gptwright import units
from gptwright.data import shards
from gptwright.data.assemble import overlap
from gptwright.data.characters import CharTokenizer
from gptwright.data.contiguous import encode_contiguous, read_contiguous
from gptwright.data.draw import Draw, Numbers, exact_duplicates
from gptwright.data.encode import write_dropped
from gptwright.data.encoding import Encoding
from gptwright.data.folder import TOKENIZER_NAME, check_target, write_durably
from gptwright.data.manifest import MANIFEST_NAME, Dtype, Manifest, SettingsRecord, SplitMethod, read_manifest
from gptwright.data.nanogpt_meta import META_NAME, meta_of
from gptwright.data.near import near_duplicates as near_duplicates_of
from gptwright.data.pieces import piece_size
from gptwright.data.prepared import Outcome, PrepareReport, manifest_of, report_of
from gptwright.data.sketch import LEAST_THRESHOLD, algorithm
from gptwright.data.sources import NAMED_CORPORA, open_corpus, parse_condition
from gptwright.data.sources.corpus import UNIT_BYTES, Corpus, Tally, Unit, require_text
from gptwright.data.sources.records import RecordOptions
from gptwright.data.survey import Survey, survey
from gptwright.data.tokenizer_base import Tokenizer
from gptwright.data.tokenizers import load_tokenizer, make_tokenizer
from gptwright.data.training_sample import training_sample
from gptwright.data.work import Workspace, workspace
from gptwright.errors import DataError
from gptwright.facts import Fact, Origin
from gptwright.hardware.cpu import usable_cores

__all__ = ["PrepareReport", "Progress", "prepare"]

_SMALL_CORPUS_BYTES = 5_000_000


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the work is.

    Attributes:
        stage: `reading`, `comparing`, `tokenizer` or `encoding`.
        done: bytes of the source that are done in this stage, about.
        total: bytes of the source, about.
        tokens: that were written so far.
    """

    stage: str
    done: int
    total: int
    tokens: int = 0


def prepare(
    source: str,
    *,
    out: Path,
    tokenizer: str | None = None,
    split: SplitMethod = "hash",
    from_file: Path | None = None,
    max_tokens: int | None = None,
    skip_bad: bool = False,
    workers: int | None = None,
    text_column: str | None = None,
    where: tuple[str, ...] = (),
    near_duplicates: float | None = None,
    progress: Callable[[Progress], None] | None = None,
    say: Callable[[str], None] | None = None,
) -> PrepareReport:
    """Prepares a corpus, or goes on with what an earlier run of the same call left unfinished.

    Args:
        source: a file or folder of text, Parquet or JSONL, `hf:OWNER/NAME`, or a named corpus.
        out: the folder to make. An earlier dataset of the same settings there is replaced at the end.
        tokenizer: `char`, `byte`, `gpt2`, `bpe:N` or a tokenizer file; None chooses.
        split: `hash` draws validation by content, `nanogpt` takes the last 10 % of the characters.
        from_file: a copy of the named corpus.
        max_tokens: where the training split ends. Validation is drawn from the whole corpus all the same.
        skip_bad: leave out what is broken, instead of stopping at it.
        workers: processes that read and encode; None takes one a core. The result does not depend on it.
        text_column: the column of Parquet or JSONL that holds the text; None is `text`.
        where: conditions that a record must fulfil, such as `int_score>=4`.
        near_duplicates: leave out documents that are at least this alike to an earlier one, from 0.5 to 1;
            None leaves out equal ones alone.
        progress: told how far the work is.
        say: told in a sentence what is about to be downloaded.

    Raises:
        DataError: the corpus, a setting or the target cannot be used.
        DiskFullError: there is no room. What is finished stays, if it is worth going on from.
    """
    _check_numbers(max_tokens, workers)
    _check_near(near_duplicates, split)
    options = RecordOptions(text_column or "text", tuple(parse_condition(text) for text in where))
    corpus = open_corpus(source, from_file=from_file, skip_bad=skip_bad, options=options, say=say)
    choice = _choose_tokenizer(source, corpus, tokenizer)
    settings = SettingsRecord(
        source=corpus.name,
        tokenizer=str(choice.value),
        split=split,
        max_tokens=max_tokens,
        text_column=text_column,
        where=list(where),
        near_duplicates=near_duplicates,
    )
    check_target(out, settings)
    job = _Job(corpus, settings, workers or usable_cores(), progress or (lambda _: None))
    _carry_out(job, out)
    return report_of(out, choice, read_manifest(out))


class _Job:
    """One preparation.

    Args:
        corpus: what is prepared.
        settings: what was asked.
        workers: how many processes.
        progress: told how far the work is.
    """

    def __init__(
        self, corpus: Corpus, settings: SettingsRecord, workers: int, progress: Callable[[Progress], None]
    ) -> None:
        self.corpus = corpus
        self.settings = settings
        self.spec = settings.tokenizer
        self.workers = workers
        self.survey: Survey | None = None
        self._dtype: Dtype = "uint16"
        self._progress = progress
        self._total = self._done = 0

    def bytes_needed(self) -> float | None:
        """About how large the dataset will be, once the corpus was read."""
        if self.survey is None:
            return None
        return self.survey.estimated_tokens(self.spec) * (2 if self._dtype == "uint16" else 4)

    def run(self, space: Workspace) -> None:
        """Makes the dataset in the workspace."""
        outcome = self._contiguous(space) if self.settings.split == "nanogpt" else self._by_content(space)
        manifest = manifest_of(self.corpus, self.settings, outcome)
        _write_descriptions(space.dataset, outcome.tokenizer, manifest)

    def _by_content(self, space: Workspace) -> Outcome:
        planned = Tally()
        units_ = self.corpus.units(planned)
        whole = self.corpus.reader.whole_documents
        size = None if whole else piece_size(self.corpus.total_bytes)
        found = self.survey = self._survey(units_, space, planned, size)
        exact = exact_duplicates(found.tables, whole=whole)
        near = self._near(found, exact)
        draw = Draw(found.tables, [np.union1d(*both) for both in zip(exact, near, strict=True)])
        fraction = found.validation_fraction(self.spec)
        limit = draw.limit(fraction)
        for index, numbers in enumerate(draw.dropped):
            write_dropped(space, index, numbers.tolist())
        made = self._tokenizer(space, lambda: training_sample(units_, space, limit=limit, size=size), found)
        self._begin_stage(sum(unit.size for unit in units_))
        encoding = Encoding(
            corpus=self.corpus.name,
            units=units_,
            records=found.records,
            space=space,
            tokenizer=made,
            dtype=self._dtype,
            limit=limit,
            piece_size=size,
            max_train_tokens=self.settings.max_tokens,
            workers=self.workers,
            progress=lambda done, tokens: self._advance("encoding", done, tokens),
        )
        return Outcome(
            tokenizer=made,
            dtype=self._dtype,
            tally=found.tally,
            characters=found.characters,
            splits=encoding.run(),
            fraction=fraction,
            duplicates=sum(map(len, exact)),
            near_duplicates=sum(map(len, near)),
            duplicate_bytes=draw.all_bytes - draw.kept_bytes,
            drawn="documents" if whole else "pieces",
            overlap=overlap(space, len(units_)),
        )

    def _near(self, found: Survey, exact: list[Numbers]) -> list[Numbers]:
        """For each unit, the near-duplicates among its documents, if they are looked for."""
        threshold = self.settings.near_duplicates
        if threshold is None:
            return [numbers[:0] for numbers in exact]
        self._progress(Progress("comparing", 0, self._total))
        return near_duplicates_of(found.sketches, exact, threshold)

    def _survey(self, units_: list[Unit], space: Workspace, planned: Tally, size: int | None) -> Survey:
        self._begin_stage(sum(unit.size for unit in units_))
        found = survey(
            units_,
            space,
            planned=planned,
            piece_size=size,
            alphabet=self.spec == "char",
            near=self.settings.near_duplicates,
            workers=self.workers,
            progress=lambda done: self._advance("reading", done),
        )
        require_text(self.corpus.name, found.tally)
        return found

    def _contiguous(self, space: Workspace) -> Outcome:
        self._begin_stage(self.corpus.total_bytes)
        tally = Tally()
        text = read_contiguous(self.corpus, tally, lambda done: self._advance("reading", done))
        found = self.survey = Survey(tally=tally, characters=len(text), alphabet="".join(sorted(set(text))))
        made = self._tokenizer(space, lambda: iter([text[: int(len(text) * 0.9)]]), found)
        self._begin_stage(len(text))
        splits = encode_contiguous(
            text,
            self.corpus.name,
            space,
            made,
            self._dtype,
            max_train_tokens=self.settings.max_tokens,
            progress=lambda done: self._advance("encoding", done),
        )
        return Outcome(
            tokenizer=made,
            dtype=self._dtype,
            tally=tally,
            characters=len(text),
            splits=splits,
            fraction=0.1,
        )

    def _tokenizer(self, space: Workspace, sample: Callable[[], Iterator[str]], found: Survey) -> Tokenizer:
        """The tokenizer of an earlier run, or one made now and written for the workers."""
        path = space.dataset / TOKENIZER_NAME
        if path.is_file():
            made = load_tokenizer(path)
        else:
            self._progress(Progress("tokenizer", 0, self._total))
            separator = self.settings.split == "hash" and found.tally.documents > 1
            texts = (lambda: iter([found.alphabet])) if self.spec == "char" else sample
            made = make_tokenizer(self.spec, texts, separator=separator)
            write_durably(path, made.to_bytes())
            self._progress(Progress("tokenizer", self._total, self._total))
        self._dtype = "uint16" if made.vocab_size <= 2**16 else "uint32"
        return made

    def _begin_stage(self, total: int) -> None:
        self._total, self._done = max(1, total), 0

    def _advance(self, stage: str, done: int, tokens: int = 0) -> None:
        self._done += done
        self._progress(Progress(stage, min(self._done, self._total), self._total, tokens))


def _carry_out(job: _Job, out: Path) -> None:
    """Does what an earlier run left undone and puts the dataset in its place."""
    with workspace(out, _plan(job.corpus, job.settings), bytes_needed=job.bytes_needed) as space:
        if not space.finished:
            space.dataset.mkdir(exist_ok=True)
            space.units.mkdir(exist_ok=True)
            job.run(space)
            space.put_in_place()


def _plan(corpus: Corpus, settings: SettingsRecord) -> dict[str, Any]:
    """What unfinished work depends on."""
    return {
        "version": gptwright.__version__,
        **settings.model_dump(),
        "skip_bad": corpus.skip_bad,
        "sketch": None if settings.near_duplicates is None else algorithm(),
        "unit_bytes": UNIT_BYTES,
        "shard_tokens": shards.TOKENS_PER_SHARD,
        "files": [list(entry) for entry in corpus.state],
    }


def _check_numbers(max_tokens: int | None, workers: int | None) -> None:
    for option, value in (("--max-tokens", max_tokens), ("--workers", workers)):
        if value is not None and value < 1:
            raise DataError(f"{option} is {value}", why="it must be at least 1", fix=f"{option} N with N ≥ 1")


def _check_near(threshold: float | None, split: SplitMethod) -> None:
    if threshold is None:
        return
    if not LEAST_THRESHOLD <= threshold <= 1:
        raise DataError(
            f"--near-duplicates is {threshold:g}",
            why="it is the share of five-word runs that two documents have in common, and below"
            f" {LEAST_THRESHOLD:g} they are no copies",
            fix="--near-duplicates 0.8",
        )
    if split != "hash":
        raise DataError(
            "--near-duplicates and --split nanogpt do not go together",
            why="that split takes the text as it is, and looks for no documents in it",
            fix="leave one of them out",
        )


def _choose_tokenizer(source: str, corpus: Corpus, asked: str | None) -> Fact:
    size = corpus.total_bytes
    # Records have names and numbers beside their text, and are often packed.
    what = "text" if corpus.reader.kind == "text" else "files"
    if asked is not None:
        value, origin, reason = asked, Origin.CONFIGURED, "as asked"
    elif source in NAMED_CORPORA:
        value, origin, reason = "char", Origin.DERIVED, f"characters, as is usual for {source}"
    elif size < _SMALL_CORPUS_BYTES:
        small = f"{units.size(size)} of {what} is below 5 MB, too little for a large vocabulary"
        value, origin, reason = "char", Origin.DERIVED, small
    else:
        large = f"{units.size(size)} of {what} is above 5 MB, enough for GPT-2's vocabulary"
        value, origin, reason = "gpt2", Origin.DERIVED, large
    return Fact(name="tokenizer", value=value, text=value, origin=origin, reason=reason)


def _write_descriptions(folder: Path, tokenizer: Tokenizer, manifest: Manifest) -> None:
    if isinstance(tokenizer, CharTokenizer):
        write_durably(folder / META_NAME, meta_of(tokenizer))
    write_durably(folder / MANIFEST_NAME, manifest.to_json().encode("utf-8"))

"""Turns a corpus into a token dataset: shards of ids, a tokenizer and a manifest.

The corpus is read two or three times and never held: once to count it and to draw the validation split by
content, once for a tokenizer that must see it, once to encode. Only nanoGPT's contiguous split holds the
text, because it is defined on the whole.
"""

import os
import pickle
from dataclasses import dataclass
from pathlib import Path

import gptwright
from gptwright import units
from gptwright.data.characters import CharTokenizer
from gptwright.data.encode import write_splits
from gptwright.data.folder import META_NAME, TOKENIZER_NAME, check_target, replacing, write_durably
from gptwright.data.manifest import (
    DATASET_SCHEMA,
    MANIFEST_NAME,
    Dtype,
    Manifest,
    SettingsRecord,
    SkippedRecord,
    SourceRecord,
    SplitMethod,
    SplitRecord,
    TokenizerRecord,
    ValidationRecord,
)
from gptwright.data.sources import NAMED_CORPORA, open_corpus
from gptwright.data.sources.corpus import Corpus, Skipped
from gptwright.data.stretches import SplitName, in_blocks
from gptwright.data.survey import Progress, Survey
from gptwright.data.tokenizer_base import SEPARATOR_TEXT, Tokenizer
from gptwright.data.tokenizers import make_tokenizer
from gptwright.errors import DataError
from gptwright.facts import Fact, Origin

WINDOW_LENGTHS = (1024, 64)

_SMALL_CORPUS_BYTES = 5_000_000
_FEW_WINDOWS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class PrepareReport:
    """What was prepared.

    Attributes:
        out: the dataset's folder.
        tokenizer: the choice and its reason.
        vocab_size: how many ids there are.
        documents: source documents read.
        characters: of source text.
        source_bytes: of source text.
        tokens: in each split.
        bytes_per_token: UTF-8 bytes of text for each token written, separators included.
        val_windows: for a window length, how many fit into validation without overlap.
        val_note: how sure an evaluation can be.
        skipped: files left out.
        warnings: what a person should know before training on it.
    """

    out: Path
    tokenizer: Fact
    vocab_size: int
    documents: int
    characters: int
    source_bytes: int
    tokens: dict[SplitName, int]
    bytes_per_token: float
    val_windows: dict[int, int]
    val_note: str
    skipped: list[Skipped]
    warnings: list[str]


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
    progress: Progress | None = None,
) -> PrepareReport:
    """Prepares a corpus.

    Args:
        source: a text file, a folder of them, or a named corpus.
        out: the folder to make. An earlier dataset of the same settings there is replaced at the end.
        tokenizer: `char`, `byte`, `gpt2`, `bpe:N` or a tokenizer file; None chooses.
        split: `hash` draws validation by content, `nanogpt` takes the last 10 % of the characters.
        from_file: a copy of the named corpus.
        max_tokens: where the training split ends. Validation is drawn from the whole corpus all the same.
        skip_bad: leave out files that are not UTF-8, instead of stopping at them.
        workers: threads that encode; None takes up to four. The result does not depend on it.
        progress: told how far the work is.

    Raises:
        DataError: the corpus, a setting or the target cannot be used.
        DiskFullError: there is no room. As after any failure, nothing is left behind.
    """
    _check_numbers(max_tokens, workers)
    corpus = open_corpus(source, from_file=from_file, skip_bad=skip_bad)
    choice = _choose_tokenizer(source, corpus, tokenizer)
    spec = str(choice.value)
    settings = SettingsRecord(source=corpus.name, tokenizer=spec, split=split, max_tokens=max_tokens)
    check_target(out, settings)
    survey = Survey(corpus, split, progress or (lambda *_: None))
    survey.read(spec)
    made = make_tokenizer(
        spec,
        survey.training_sample if spec.startswith("bpe:") else survey.texts,
        separator=split == "hash" and survey.tally.documents > 1,
    )
    dtype: Dtype = "uint16" if made.vocab_size <= 2**16 else "uint32"
    with replacing(out, lambda: survey.estimated_tokens(spec) * (2 if dtype == "uint16" else 4)) as folder:
        splits = write_splits(
            in_blocks(survey.stretches("encoding")),
            made,
            folder,
            dtype=dtype,
            separator_id=made.separator_id if split == "hash" else None,
            max_train_tokens=max_tokens,
            workers=workers or min(4, os.cpu_count() or 1),
            on_characters=survey.advance,
        )
        manifest = _manifest(survey, settings, made, dtype, splits)
        _write_descriptions(folder, made, manifest)
    return _report(out, choice, survey, manifest)


def _check_numbers(max_tokens: int | None, workers: int | None) -> None:
    for option, value in (("--max-tokens", max_tokens), ("--workers", workers)):
        if value is not None and value < 1:
            raise DataError(f"{option} is {value}", why="it must be at least 1", fix=f"{option} N with N ≥ 1")


def _choose_tokenizer(source: str, corpus: Corpus, asked: str | None) -> Fact:
    size = corpus.total_bytes
    if asked is not None:
        value, origin, reason = asked, Origin.CONFIGURED, "as asked"
    elif source in NAMED_CORPORA:
        value, origin, reason = "char", Origin.DERIVED, f"characters, as is usual for {source}"
    elif size < _SMALL_CORPUS_BYTES:
        small = f"{units.size(size)} of text is below 5 MB, too little for a large vocabulary"
        value, origin, reason = "char", Origin.DERIVED, small
    else:
        large = f"{units.size(size)} of text is above 5 MB, enough for GPT-2's vocabulary"
        value, origin, reason = "gpt2", Origin.DERIVED, large
    return Fact(name="tokenizer", value=value, text=value, origin=origin, reason=reason)


def _manifest(
    survey: Survey,
    settings: SettingsRecord,
    tokenizer: Tokenizer,
    dtype: Dtype,
    splits: dict[SplitName, SplitRecord],
) -> Manifest:
    val = splits["val"]
    windows = {str(length): max(0, val.tokens - 1) // length for length in WINDOW_LENGTHS}
    source = SourceRecord(
        name=survey.corpus.name,
        bytes=survey.tally.bytes,
        sha256=survey.tally.sha256,
        documents=survey.tally.documents,
        skipped=[SkippedRecord(name=item.name, reason=item.reason) for item in survey.tally.skipped],
    )
    return Manifest(
        schema=DATASET_SCHEMA,
        created_by=f"gptwright {gptwright.__version__}",
        settings=settings,
        tokenizer=TokenizerRecord(kind=tokenizer.kind, file=TOKENIZER_NAME, sha256=tokenizer.sha256),
        vocab_size=tokenizer.vocab_size,
        dtype=dtype,
        byte_order="little",
        separator_id=tokenizer.separator_id,
        characters=survey.characters,
        splits=splits,
        validation=ValidationRecord(
            method=survey.split,
            fraction_asked=survey.fraction,
            hash="blake2b-128 of the piece" if survey.split == "hash" else None,
            documents=val.documents,
            tokens=val.tokens,
            windows=windows,
            standard_error_note=_certainty(windows, survey.split),
        ),
        sources=[source],
    )


def _certainty(windows: dict[str, int], split: SplitMethod) -> str:
    length, number = next(((name, n) for name, n in windows.items() if n), ("64", 0))
    if number == 0:
        return "validation is shorter than one window of 64 tokens: a loss from it says next to nothing"
    share = units.percent(number**-0.5)
    note = (
        f"{number:,} windows of {int(length):,} tokens without overlap: the mean loss over them has a"
        f" standard error of {share} of the spread between windows"
    )
    if split == "nanogpt":
        note += "; they are one stretch, the end of the text, and speak for that stretch"
    return note


def _write_descriptions(folder: Path, tokenizer: Tokenizer, manifest: Manifest) -> None:
    write_durably(folder / TOKENIZER_NAME, tokenizer.to_bytes())
    if isinstance(tokenizer, CharTokenizer):
        symbols = list(tokenizer.characters)
        if tokenizer.separator_id is not None:
            symbols.append(SEPARATOR_TEXT)
        meta = {
            "vocab_size": tokenizer.vocab_size,
            "itos": dict(enumerate(symbols)),
            "stoi": {symbol: number for number, symbol in enumerate(symbols)},
        }
        write_durably(folder / META_NAME, pickle.dumps(meta))
    write_durably(folder / MANIFEST_NAME, manifest.to_json().encode("utf-8"))


def _report(out: Path, choice: Fact, survey: Survey, manifest: Manifest) -> PrepareReport:
    tokens = {name: split.tokens for name, split in manifest.splits.items()}
    text_bytes = sum(split.text_bytes for split in manifest.splits.values())
    windows = {int(length): number for length, number in manifest.validation.windows.items()}
    note = manifest.validation.standard_error_note
    warnings = []
    if windows[1024] < _FEW_WINDOWS:
        warnings.append(
            f"the validation split has only {tokens['val']:,} tokens ({windows[1024]} windows of 1,024,"
            f" {windows[64]} of 64): small differences between runs are within chance; more text helps"
        )
    return PrepareReport(
        out=out,
        tokenizer=choice,
        vocab_size=manifest.vocab_size,
        documents=survey.tally.documents,
        characters=survey.characters,
        source_bytes=survey.tally.bytes,
        tokens=tokens,
        bytes_per_token=text_bytes / sum(tokens.values()),
        val_windows=windows,
        val_note=note,
        skipped=list(survey.tally.skipped),
        warnings=warnings,
    )

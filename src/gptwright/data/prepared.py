"""What was prepared: the manifest that is written and the report that a person reads."""

from dataclasses import dataclass
from pathlib import Path

import gptwright
from gptwright import units
from gptwright.data.folder import TOKENIZER_NAME
from gptwright.data.manifest import (
    DATASET_SCHEMA,
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
from gptwright.data.sources.corpus import Corpus, Skipped, Tally
from gptwright.data.stretches import SplitName
from gptwright.data.tokenizer_base import Tokenizer
from gptwright.facts import Fact

WINDOW_LENGTHS = (1024, 64)

_FEW_WINDOWS = 16
_ENOUGH_TOKENS = 1_000_000
# A file of these kinds is read as the text that it is, marks and all.
_MARKED_UP = (".json", ".csv", ".tsv", ".html", ".htm", ".xml", ".ipynb")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What `prepare` made, before it is described; the fields are those of the manifest."""

    tokenizer: Tokenizer
    dtype: Dtype
    tally: Tally
    characters: int
    splits: dict[SplitName, SplitRecord]
    fraction: float
    duplicates: int = 0
    near_duplicates: int = 0
    duplicate_bytes: int = 0
    drawn: str = "pieces"
    overlap: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PrepareReport:
    """What was prepared.

    Attributes:
        out: the dataset's folder.
        tokenizer: the choice and its reason.
        vocab_size: how many ids there are.
        dtype: how an id is stored.
        documents: source documents read, duplicates among them.
        duplicates: documents that were dropped because their text occurred before.
        near_duplicates: documents that were dropped because they are much like one before them.
        characters: of source text.
        source_bytes: of source text.
        tokens: in each split.
        bytes_per_token: UTF-8 bytes of text for each token written, separators included.
        val_windows: for a window length, how many fit into validation without overlap.
        val_note: how sure an evaluation can be.
        overlap: how many training documents are in validation too; None where that was not counted.
        bad: how many files or records were left out because they are broken.
        filtered: how many records a condition left out.
        empty: how many records had no text.
        skipped: what was left out as broken, the first thousand.
        warnings: what a person should know before training on it.
    """

    out: Path
    tokenizer: Fact
    vocab_size: int
    dtype: Dtype
    documents: int
    duplicates: int
    near_duplicates: int
    characters: int
    source_bytes: int
    tokens: dict[SplitName, int]
    bytes_per_token: float
    val_windows: dict[int, int]
    val_note: str
    overlap: int | None
    bad: int
    filtered: int
    empty: int
    skipped: list[Skipped]
    warnings: list[str]


def manifest_of(corpus: Corpus, settings: SettingsRecord, made: Outcome) -> Manifest:
    """The manifest of a dataset."""
    val = made.splits["val"]
    windows = {str(length): max(0, val.tokens - 1) // length for length in WINDOW_LENGTHS}
    tally = made.tally
    source = SourceRecord(
        name=corpus.name,
        bytes=tally.bytes,
        sha256=tally.sha256,
        documents=tally.documents,
        skipped=[SkippedRecord(name=item.name, reason=item.reason) for item in tally.skipped],
        bad=tally.bad,
        filtered=tally.filtered,
        empty=tally.empty,
        duplicates=made.duplicates,
        near_duplicates=made.near_duplicates,
        duplicate_bytes=made.duplicate_bytes,
    )
    return Manifest(
        schema=DATASET_SCHEMA,
        created_by=f"gptwright {gptwright.__version__}",
        settings=settings,
        tokenizer=TokenizerRecord(
            kind=made.tokenizer.kind, file=TOKENIZER_NAME, sha256=made.tokenizer.sha256
        ),
        vocab_size=made.tokenizer.vocab_size,
        dtype=made.dtype,
        byte_order="little",
        separator_id=made.tokenizer.separator_id,
        characters=made.characters,
        splits=made.splits,
        validation=ValidationRecord(
            method=settings.split,
            fraction_asked=made.fraction,
            hash=f"blake2b-128 of the {'document' if made.drawn == 'documents' else 'piece'}"
            if settings.split == "hash"
            else None,
            documents=val.documents,
            tokens=val.tokens,
            windows=windows,
            standard_error_note=certainty(windows, settings.split),
            drawn="documents" if made.drawn == "documents" else "pieces",
            overlap=made.overlap,
        ),
        sources=[source],
    )


def certainty(windows: dict[str, int], split: SplitMethod) -> str:
    """How sure an evaluation can be on so many windows of each length."""
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


def report_of(out: Path, choice: Fact, manifest: Manifest) -> PrepareReport:
    """The report of a dataset that is in its place."""
    tokens = {name: split.tokens for name, split in manifest.splits.items()}
    text_bytes = sum(split.text_bytes for split in manifest.splits.values())
    source, validation = manifest.sources[0], manifest.validation
    return PrepareReport(
        out=out,
        tokenizer=choice,
        vocab_size=manifest.vocab_size,
        dtype=manifest.dtype,
        documents=source.documents,
        duplicates=source.duplicates,
        near_duplicates=source.near_duplicates,
        characters=manifest.characters,
        source_bytes=source.bytes,
        tokens=tokens,
        bytes_per_token=text_bytes / max(1, sum(tokens.values())),
        val_windows={int(length): number for length, number in validation.windows.items()},
        val_note=validation.standard_error_note,
        overlap=validation.overlap,
        bad=source.bad,
        filtered=source.filtered,
        empty=source.empty,
        skipped=[Skipped(item.name, item.reason) for item in source.skipped],
        warnings=_warnings(manifest),
    )


def _warnings(manifest: Manifest) -> list[str]:
    tokens, total = manifest.splits["val"].tokens, sum(split.tokens for split in manifest.splits.values())
    windows = manifest.validation.windows
    warnings = []
    name = manifest.sources[0].name
    if name.lower().endswith(_MARKED_UP):
        warnings.append(
            f"{name} was read as plain text, with its names, quotes and marks: if its texts alone are meant,"
            ' save them as .txt or, one {"text": …} a line, as .jsonl'
        )
    if windows["1024"] < _FEW_WINDOWS:
        warnings.append(
            f"the validation split has only {tokens:,} tokens ({windows['1024']} windows of 1,024,"
            f" {windows['64']} of 64): small differences between runs are within chance; more text helps"
        )
    elif tokens < min(_ENOUGH_TOKENS, total // 100):
        warnings.append(
            f"the validation split has {tokens:,} tokens, less than a million and less than 1 % of the"
            f" {total:,}: {manifest.validation.standard_error_note}"
        )
    return warnings

"""What `inspect` found, for people and as JSON."""

from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.markup import escape

from gptwright import units
from gptwright.data.inspection import Histogram, Inspection
from gptwright.errors import typed


def show_inspection(console: Console, found: Inspection) -> None:
    """Prints the manifest for people."""
    dataset, manifest = found.dataset, found.dataset.manifest
    console.print(
        f"[bold]{escape(dataset.name)}[/] {units.size(found.bytes)} in {escape(str(dataset.folder))}"
    )
    console.print(f"vocabulary {dataset.vocab_size:,} ids: {escape(dataset.vocab_origin)}")
    for name, split in dataset.splits.items():
        line = f"[bold]{name}[/] {split.tokens:,} tokens in {units.counted(len(split.shards), 'file')}"
        if manifest is not None:
            record = manifest.splits[name]  # type: ignore[index]
            # A document much larger than the rest is divided between the splits.
            whole = sum(each.documents for each in manifest.splits.values()) <= manifest.sources[0].documents
            noun = ("document", "documents") if whole else ("stretch", "stretches")
            line += f", {units.counted(record.documents, *noun)}"
            if split.tokens and record.text_bytes:
                line += f", {record.text_bytes / split.tokens:.2f} bytes a token"
        console.print(line)
    if manifest is None:
        console.print(
            f"it has no manifest; `gptwright prepare {escape(typed(dataset.folder))}` writes one",
            soft_wrap=True,
        )
    else:
        _show_manifest(console, found)
    _show_histogram(console, found.histogram, dataset.vocab_size)
    if found.epochs is not None:
        plan, epochs = found.epochs
        console.print(f"{escape(plan)} makes {epochs:.2f} passes over train")
    for window in found.windows:
        console.print(
            f"[dim]{window.split} {window.position:,}:[/] {escape(repr(window.text))}", soft_wrap=True
        )
    if found.verified is not None:
        console.print(f"[green]verified[/] {units.size(found.verified)} of ids: hashes, range, tokenizer")


def _show_manifest(console: Console, found: Inspection) -> None:
    manifest = found.dataset.manifest
    assert manifest is not None
    source, validation = manifest.sources[0], manifest.validation
    console.print(
        f"from {escape(source.name)}: {units.counted(source.documents, 'document')},"
        f" {units.size(source.bytes)} of text; {units.counted(source.duplicates, 'duplicate')},"
        f" {units.counted(source.near_duplicates, 'near-duplicate')},"
        f" {source.bad:,} broken, {source.filtered:,} filtered left out"
    )
    console.print(f"validation by {validation.method}: {escape(validation.standard_error_note)}")
    if found.overlap is not None:
        console.print(f"{found.overlap:,} training documents are in validation too")


def _show_histogram(console: Console, histogram: Histogram, vocab_size: int) -> None:
    console.print(
        f"a sample of {histogram.sampled:,} ids has {histogram.used:,} of {vocab_size:,};"
        f" guessing by frequency alone has a loss of {histogram.entropy:.3f} nats a token"
    )
    most = "  ".join(f"{escape(repr(item.text))} {units.percent(item.share)}" for item in histogram.most)
    console.print(f"most frequent: {most}")


def inspection_document(found: Inspection) -> dict[str, Any]:
    """The same as one JSON document."""
    dataset, manifest = found.dataset, found.dataset.manifest
    return {
        "schema": "gptwright.inspection/1",
        "name": dataset.name,
        "folder": str(dataset.folder),
        "bytes": found.bytes,
        "tokenizer": dataset.tokenizer_kind,
        "vocab_size": dataset.vocab_size,
        "vocab_origin": dataset.vocab_origin,
        "fingerprint": dataset.fingerprint,
        "splits": {
            name: {"tokens": split.tokens, "text_bytes": split.text_bytes, "files": len(split.shards)}
            for name, split in dataset.splits.items()
        },
        "histogram": asdict(found.histogram),
        "windows": [asdict(window) for window in found.windows],
        "epochs": None if found.epochs is None else found.epochs[1],
        "verified_bytes": found.verified,
        "overlap": found.overlap,
        "manifest": None if manifest is None else manifest.model_dump(mode="json", by_alias=True),
    }

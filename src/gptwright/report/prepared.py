"""What `prepare` made, for people and as JSON."""

from typing import Any

from rich.console import Console
from rich.markup import escape

from gptwright import units
from gptwright.data.prepare import PrepareReport

# A person reads so many; the manifest lists a thousand.
_SHOWN = 20


def show_prepared(console: Console, report: PrepareReport) -> None:
    """Prints sizes, the split, what was left out, and what to know before training."""
    train, val = report.tokens["train"], report.tokens["val"]
    size = f"{report.characters:,} characters" if report.characters else units.size(report.source_bytes)
    console.print(
        f"[bold]{train:,}[/] training and [bold]{val:,}[/] validation tokens"
        f" from {units.counted(report.documents, 'document')}"
        f" ({size}, {report.bytes_per_token:.2f} bytes a token)"
    )
    console.print(
        f"tokenizer {escape(report.tokenizer.text)}, {report.vocab_size:,} ids"
        f" ({escape(report.tokenizer.reason)})"
    )
    console.print(f"validation: {escape(report.val_note)}")
    if report.overlap is not None:
        console.print(f"{report.overlap:,} validation texts are in training too")
    _show_left_out(console, report)
    for warning in report.warnings:
        console.print(f"[yellow]warning:[/] {escape(warning)}")
    console.print(f"[bold]dataset[/] {escape(str(report.out))}", soft_wrap=True)


def _show_left_out(console: Console, report: PrepareReport) -> None:
    dropped = (
        (report.duplicates, "duplicate", " of earlier documents"),
        (report.near_duplicates, "near-duplicate", " of earlier documents"),
        (report.filtered, "record", " by --where"),
        (report.empty, "record", " without text"),
    )
    for number, noun, which in dropped:
        if number:
            console.print(f"left out: {units.counted(number, noun)}{which}")
    for skipped in report.skipped[:_SHOWN]:
        console.print(f"[yellow]left out:[/] {escape(skipped.name)}: {escape(skipped.reason)}")
    if report.bad > _SHOWN:
        console.print(
            f"[yellow]left out:[/] {report.bad - _SHOWN:,} more broken ones; manifest.json lists a thousand"
        )


def prepared_document(report: PrepareReport) -> dict[str, Any]:
    """The same as one JSON document."""
    return {
        "schema": "gptwright.prepare/1",
        "out": str(report.out),
        "tokenizer": {"kind": report.tokenizer.text, "reason": report.tokenizer.reason},
        "vocab_size": report.vocab_size,
        "dtype": report.dtype,
        "documents": report.documents,
        "duplicates": report.duplicates,
        "near_duplicates": report.near_duplicates,
        "characters": report.characters,
        "source_bytes": report.source_bytes,
        "tokens": dict(report.tokens),
        "bytes_per_token": report.bytes_per_token,
        "val_windows": {str(length): windows for length, windows in report.val_windows.items()},
        "val_note": report.val_note,
        "overlap": report.overlap,
        "bad": report.bad,
        "filtered": report.filtered,
        "empty": report.empty,
        "skipped": [{"name": skipped.name, "reason": skipped.reason} for skipped in report.skipped],
        "warnings": report.warnings,
    }

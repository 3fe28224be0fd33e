"""What `prepare` made, for people and as JSON."""

from typing import Any

from rich.console import Console
from rich.markup import escape

from gptwright.data.prepare import PrepareReport


def show_prepared(console: Console, report: PrepareReport) -> None:
    """Prints sizes, the split, what was left out, and what to know before training."""
    train, val = report.tokens["train"], report.tokens["val"]
    documents = f"{report.documents:,} document{'' if report.documents == 1 else 's'}"
    console.print(
        f"[bold]{train:,}[/] training and [bold]{val:,}[/] validation tokens"
        f" from {documents} ({report.characters:,} characters,"
        f" {report.bytes_per_token:.2f} bytes a token)"
    )
    console.print(
        f"tokenizer {escape(report.tokenizer.text)}, {report.vocab_size:,} ids"
        f" ({escape(report.tokenizer.reason)})"
    )
    console.print(f"validation: {escape(report.val_note)}")
    for skipped in report.skipped:
        console.print(f"[yellow]left out:[/] {escape(skipped.name)}: {escape(skipped.reason)}")
    for warning in report.warnings:
        console.print(f"[yellow]warning:[/] {escape(warning)}")
    console.print(f"[bold]dataset[/] {escape(str(report.out))}", soft_wrap=True)


def prepared_document(report: PrepareReport) -> dict[str, Any]:
    """The same as one JSON document."""
    return {
        "schema": "gptwright.prepare/1",
        "out": str(report.out),
        "tokenizer": {"kind": report.tokenizer.text, "reason": report.tokenizer.reason},
        "vocab_size": report.vocab_size,
        "documents": report.documents,
        "characters": report.characters,
        "source_bytes": report.source_bytes,
        "tokens": dict(report.tokens),
        "bytes_per_token": report.bytes_per_token,
        "val_windows": {str(length): windows for length, windows in report.val_windows.items()},
        "val_note": report.val_note,
        "skipped": [{"name": skipped.name, "reason": skipped.reason} for skipped in report.skipped],
        "warnings": report.warnings,
    }

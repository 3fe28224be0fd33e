"""What was imported, exported and scored, for people: views of the documents that `--json` prints."""

from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape

from gptwright import units
from gptwright.errors import typed
from gptwright.facts import Fact, Origin, derived
from gptwright.report.terminal import facts_table


def show_adopted(console: Console, document: Mapping[str, Any]) -> None:
    """Prints an import, and how to go on."""
    best, dataset = document["best_val_loss"], document["dataset"]
    tokenizer = document["tokenizer"]
    facts = [
        derived("parameters", document["parameters"], document["shape"], unit="parameters"),
        _logged("step", f"{document['step']:,}", document["origin"]),
        _logged("best validation loss", "–" if best is None else f"{best:.4f}", "as the file says"),
        _logged(
            "optimizer", *(("AdamW", "in the file") if document["optimizer"] else ("none", "starts anew"))
        ),
        _logged("dataset", dataset or "open", "" if dataset else "--dataset=NAME at the first resume"),
        _logged("tokenizer", tokenizer or "unknown", "" if tokenizer else "nothing tells it"),
    ]
    console.print(facts_table(facts, title="Imported"))
    _notes(console, document["notes"])
    run = document["run"]
    command = f"gptwright resume {typed(run)}"
    console.print(f"[bold]run folder[/] {escape(run)}\nto go on: {escape(command)}", soft_wrap=True)


def show_exported(console: Console, document: Mapping[str, Any]) -> None:
    """Prints what an export wrote."""
    run, checkpoint = escape(document["run"]), document["checkpoint"]
    console.print(f"[bold]{run}[/], {checkpoint}, as {document['format']}", soft_wrap=True)
    for name, size in document["files"].items():
        console.print(f"  {units.size(size):>10}  {escape(name)}")
    _notes(console, document["notes"])
    console.print(f"[bold]written to[/] {escape(document['out'])}", soft_wrap=True)


def show_score(console: Console, document: Mapping[str, Any]) -> None:
    """Prints a score: how good a run is on a text, and how the text was cut."""
    error = document["loss_standard_error"]
    certain = f"± {error:.4f} (standard error)" if error is not None else "(one window: no standard error)"
    facts = [
        _fact(
            "loss", f"{document['loss']:.4f} {certain}", f"nats a token over {document['tokens']:,} tokens"
        ),
        _fact("perplexity", f"{document['perplexity']:.4f}", "exp(loss)"),
        _fact("bits per byte", *_bits(document)),
        _fact("context", units.counted(document["windows"], "window"), document["context"]),
    ]
    title = f"{document['run']}, {document['checkpoint']}, on {document['text']}"
    console.print(facts_table(facts, title=escape(title)))


def _bits(document: Mapping[str, Any]) -> tuple[str, str]:
    if document["bits_per_byte"] is None:
        return "–", "the run does not know its tokenizer, so bytes cannot be counted"
    return f"{document['bits_per_byte']:.4f}", f"loss × tokens / ln 2 / {document['bytes']:,} bytes of text"


def _logged(name: str, text: str, reason: str) -> Fact:
    return Fact(name=name, value=text, text=text, origin=Origin.LOGGED, reason=reason)


def _fact(name: str, text: str, reason: str) -> Fact:
    return Fact(name=name, value=text, text=text, origin=Origin.MEASURED, reason=reason)


def _notes(console: Console, notes: Iterable[str]) -> None:
    for note in notes:
        console.print(f"[yellow]note:[/] {escape(note)}", soft_wrap=True)

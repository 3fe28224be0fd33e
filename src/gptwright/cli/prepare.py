"""`gptwright prepare`."""

from pathlib import Path

import click
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from gptwright.cli.options import json_option, print_json
from gptwright.data.prepare import PrepareReport, prepare
from gptwright.report.prepared import prepared_document, show_prepared
from gptwright.report.terminal import console_for


@click.command(
    help="""Turn text into a token dataset.

    SOURCE is a text file, a folder of .txt and .md files, or a named corpus: `shakespeare` (Tiny Shakespeare)
    or `pystdlib` (the source of the Python that runs this; needs no network).
    """
)
@click.argument("source")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder of the dataset to make.")
@click.option(
    "--tokenizer", metavar="KIND", help="char, byte, gpt2, bpe:N (trained on the corpus) or a tokenizer file."
)
@click.option(
    "--split",
    type=click.Choice(["hash", "nanogpt"]),
    default="hash",
    show_default=True,
    help="hash: validation drawn by content over the whole corpus; nanogpt: its contiguous 90/10 cut.",
)
@click.option(
    "--from", "from_file", type=click.Path(path_type=Path), help="A copy of the named corpus on this machine."
)
@click.option("--max-tokens", type=int, help="Stop after this many training tokens.")
@click.option("--workers", type=int, help="Threads that encode; the result does not depend on it.")
@click.option("--skip-bad", is_flag=True, help="Leave out files that are not valid UTF-8, and list them.")
@json_option
def command(
    source: str,
    out: Path,
    tokenizer: str | None,
    split: str,
    from_file: Path | None,
    max_tokens: int | None,
    workers: int | None,
    skip_bad: bool,
    as_json: bool,
) -> None:
    """Prepares a corpus under a progress bar."""
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        console=console_for(stderr=True),
        transient=True,
    ) as progress:
        task = progress.add_task("reading", total=1.0)
        report = prepare(
            source,
            out=out,
            tokenizer=tokenizer,
            split="nanogpt" if split == "nanogpt" else "hash",
            from_file=from_file,
            max_tokens=max_tokens,
            skip_bad=skip_bad,
            workers=workers,
            progress=lambda stage, done: progress.update(task, description=stage, completed=done),
        )
    show(report, as_json=as_json)


def show(report: PrepareReport, *, as_json: bool) -> None:
    """Prints what was prepared."""
    if as_json:
        print_json(prepared_document(report))
    else:
        show_prepared(console_for(), report)

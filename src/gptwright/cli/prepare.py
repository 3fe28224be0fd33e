"""`gptwright prepare`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from gptwright.cli.amounts import WholeAmount
from gptwright.cli.options import json_option, print_json

if TYPE_CHECKING:
    from gptwright.data.prepare import PrepareReport


@click.command(
    help="""Turn text into a token dataset.

    SOURCE is a file or folder of text (.txt, .md), Parquet or JSONL (.jsonl, also .gz and .zst); a Hugging
    Face repository, hf:OWNER/NAME[@REVISION][/SUBFOLDER]; or a named corpus: `shakespeare` (Tiny Shakespeare)
    or `pystdlib` (the source of the Python that runs this; needs no network). A folder of token ids of
    nanoGPT, llm.c or modded-nanogpt gets a manifest in place, without --out.

    The same command goes on with what was stopped or killed.
    """
)
@click.argument("source")
@click.option("--out", type=click.Path(path_type=Path), help="Folder of the dataset to make.")
@click.option(
    "--tokenizer",
    metavar="KIND",
    help="char, byte, gpt2, bpe:N (trained on the corpus), or a tokenizer.json or .tiktoken file. "
    " [default: char for the named corpora and below 5 MB, else gpt2]",
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
@click.option(
    "--text-column", metavar="NAME", help="Column of the text in Parquet or JSONL.  [default: text]"
)
@click.option(
    "--where",
    multiple=True,
    metavar="CONDITION",
    help="Keep records that fulfil it, such as 'int_score>=4'; may be given several times.",
)
@click.option(
    "--near-duplicates",
    type=float,
    metavar="SHARE",
    help="Leave out documents that share this much of their five-word runs with an earlier one, such as 0.8.",
)
@click.option("--max-tokens", type=WholeAmount(), help="Stop after this many training tokens, such as 10M.")
@click.option(
    "--workers", type=int, help="Processes; the result does not depend on it.  [default: one a core]"
)
@click.option("--skip-bad", is_flag=True, help="Leave out broken files and records, and list them.")
@json_option
def command(
    source: str,
    out: Path | None,
    tokenizer: str | None,
    split: str,
    from_file: Path | None,
    text_column: str | None,
    where: tuple[str, ...],
    near_duplicates: float | None,
    max_tokens: int | None,
    workers: int | None,
    skip_bad: bool,
    as_json: bool,
) -> None:
    """Prepares a corpus under a progress bar."""
    from rich.markup import escape

    from gptwright.data.describe import describe_in_place
    from gptwright.data.locate import is_dataset
    from gptwright.data.prepare import prepare
    from gptwright.report.preparing import ProgressBar
    from gptwright.report.terminal import console_for

    if is_dataset(Path(source)) and (out is None or out.resolve() == Path(source).resolve()):
        show(describe_in_place(Path(source), tokenizer=tokenizer), as_json=as_json)
        return
    if out is None:
        raise click.UsageError("Missing option '--out': the folder of the dataset to make")
    console = console_for(stderr=True, outlives=True)
    with ProgressBar(console) as bar:
        try:
            report = prepare(
                source,
                out=out,
                tokenizer=tokenizer,
                split="nanogpt" if split == "nanogpt" else "hash",
                from_file=from_file,
                text_column=text_column,
                where=where,
                near_duplicates=near_duplicates,
                max_tokens=max_tokens,
                skip_bad=skip_bad,
                workers=workers,
                progress=bar.show,
                say=lambda sentence: console.print(escape(sentence), soft_wrap=True),
            )
        except KeyboardInterrupt:
            partial = out.resolve().with_name(f"{out.resolve().name}.partial")
            if partial.exists():
                click.echo(f"what is done is kept in {partial}; the same command goes on with it", err=True)
            raise
    show(report, as_json=as_json)


def show(report: "PrepareReport", *, as_json: bool) -> None:
    """Prints what was prepared."""
    from gptwright.report.prepared import prepared_document, show_prepared
    from gptwright.report.terminal import console_for

    if as_json:
        print_json(prepared_document(report))
    else:
        show_prepared(console_for(), report)

"""`gptwright inspect`."""

import click

from gptwright.cli.options import json_option, print_json


@click.command(
    help="""Say what a token dataset holds.

    DATASET is a folder, or a name under data/: ours, nanoGPT's, or shards of llm.c and modded-nanogpt. Sizes,
    where it came from, how validation was drawn, the most frequent ids, and some of its text.
    """
)
@click.argument("dataset")
@click.option("--verify", is_flag=True, help="Read every byte: hashes, ids, tokenizer, overlap.")
@click.option("--plan", metavar="CONFIG", help="Say how many passes this config makes over it.")
@click.option(
    "--windows",
    "number",
    type=click.IntRange(min=0),
    default=2,
    show_default=True,
    help="Texts to show of a split.",
)
@json_option
def command(dataset: str, verify: bool, plan: str | None, number: int, as_json: bool) -> None:
    """Looks at a dataset."""
    from gptwright.data.inspection import inspect_dataset
    from gptwright.report.inspected import inspection_document, show_inspection
    from gptwright.report.terminal import console_for

    found = inspect_dataset(dataset, plan=plan, number=number, verify=verify)
    if as_json:
        print_json(inspection_document(found))
    else:
        show_inspection(console_for(), found)

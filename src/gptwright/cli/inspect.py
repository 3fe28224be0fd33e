"""`gptwright inspect`."""

import click

from gptwright.cli.options import json_option, print_json
from gptwright.config.load import load_config
from gptwright.data.dataset import TokenDataset, open_dataset
from gptwright.data.inspection import dataset_bytes, histogram, overlap, windows
from gptwright.data.sampling import window_count
from gptwright.data.tokenizer_base import Tokenizer
from gptwright.errors import DataError
from gptwright.report.inspected import Inspection, inspection_document, show_inspection
from gptwright.report.terminal import console_for


@click.command(
    help="""Say what a token dataset holds.

    DATASET is a folder, or a name under data/: ours, nanoGPT's, or shards of llm.c and modded-nanogpt. Sizes,
    where it came from, how validation was drawn, the most frequent ids, and some of its text.
    """
)
@click.argument("dataset")
@click.option("--verify", is_flag=True, help="Read every byte: hashes, ids, tokenizer, overlap.")
@click.option("--plan", metavar="CONFIG", help="Say how many passes this config makes over it.")
@click.option("--windows", "number", type=int, default=2, show_default=True, help="Texts to show of a split.")
@json_option
def command(dataset: str, verify: bool, plan: str | None, number: int, as_json: bool) -> None:
    """Looks at a dataset."""
    opened = open_dataset(dataset)
    tokenizer = _tokenizer(opened)
    found = Inspection(
        dataset=opened,
        bytes=dataset_bytes(opened.folder),
        histogram=histogram(opened, tokenizer),
        windows=windows(opened, tokenizer, number=number),
        epochs=None if plan is None else _epochs(opened, plan),
        verified=opened.verify() if verify else None,
        overlap=_overlap(opened, count=verify),
    )
    if as_json:
        print_json(inspection_document(found))
    else:
        show_inspection(console_for(), found)


def _tokenizer(dataset: TokenDataset) -> Tokenizer | None:
    return None if dataset.tokenizer_kind == "unknown" else dataset.tokenizer()


def _overlap(dataset: TokenDataset, *, count: bool) -> int | None:
    if dataset.manifest is None or dataset.manifest.separator_id is None:
        return None
    return overlap(dataset) if count else dataset.manifest.validation.overlap


def _epochs(dataset: TokenDataset, plan: str) -> tuple[str, float]:
    config = load_config([plan], {}).config
    there = window_count(dataset.splits["train"], config.block_size)
    if not there:
        raise DataError(
            f"not one window of block_size = {config.block_size:,} fits into {dataset.folder}",
            fix="a smaller --block_size, or more text",
        )
    return plan, config.max_iters * config.sequences_per_step / there

"""`gptwright export`."""

from pathlib import Path

import click

from gptwright.cli.options import json_option, print_json


@click.command(
    help="""Write a run's model in another format: its best checkpoint, or the one that is named.

    hf: a folder that transformers loads as GPT-2, with tokenizer, generation config and a model card.
    nanogpt: ckpt.pt with optimizer and step, which nanoGPT's train.py and sample.py read.
    gguf: model.gguf for llama.cpp and what is built on it, in float32.
    """
)
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "--format", "form", required=True, type=click.Choice(["hf", "nanogpt", "gguf"]), help="What to write."
)
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Folder to make.")
@click.option("--checkpoint", metavar="NAME", help="A checkpoint's name, `last` or `best`.  [default: best]")
@json_option
def command(run: Path, form: str, out: Path, checkpoint: str | None, as_json: bool) -> None:
    """Exports a run."""
    from gptwright.interop.export import export_run
    from gptwright.record.run import RunFolder
    from gptwright.report.interop import show_exported
    from gptwright.report.terminal import console_for
    from gptwright.train.load import open_trained

    trained = open_trained(RunFolder.existing(run), checkpoint=checkpoint)
    document = export_run(trained, form, out).document()
    if as_json:
        print_json(document)
    else:
        show_exported(console_for(), document)

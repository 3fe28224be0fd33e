"""`gptwright import`."""

from pathlib import Path
from typing import Any

import click

from gptwright.cli.options import (
    SCHEMA_OPTIONS,
    changed_settings,
    json_option,
    overrides,
    print_json,
    refuse_out_dir,
    split_arguments,
)


@click.command(
    context_settings=SCHEMA_OPTIONS,
    help="""Make a run folder of a model from elsewhere, without running anything that is in it.

    SOURCE is nanoGPT's ckpt.pt or the folder that holds it, a folder of Hugging Face's GPT-2 (config.json and
    model.safetensors), a model file of llm.c, or gpt2, gpt2-medium, gpt2-large, gpt2-xl. A nanoGPT run keeps
    its optimizer, step, best loss and settings, and `gptwright resume` goes on with it; give --dataset where
    its own name leads to nothing here. To fine-tune weights as a new run: gptwright train --init_from=SOURCE.
    """,
)
@click.argument("source")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Run folder to make.")
@click.option("--weights-only", is_flag=True, help="Leave an optimizer's state out: AdamW starts anew.")
@json_option
@changed_settings
def command(
    source: str, unknown: tuple[str, ...], out: Path, weights_only: bool, as_json: bool, **fields: Any
) -> None:
    """Imports a model."""
    from rich.markup import escape

    from gptwright.config.load import option_settings
    from gptwright.interop.open import open_foreign
    from gptwright.report.interop import show_adopted
    from gptwright.report.terminal import console_for
    from gptwright.train.adopt import adopt

    positional, options = split_arguments(unknown)
    if positional:
        raise click.UsageError(f"import takes one source; also given: {' '.join(positional)}")
    given = overrides(fields, options)
    refuse_out_dir(given, f"--out {out}")
    console = console_for(stderr=as_json)
    foreign = open_foreign(
        source,
        say=lambda sentence: console.print(escape(sentence), soft_wrap=True),
        with_optimizer=not weights_only,
    )
    adopted = adopt(foreign, out, option_settings(given))
    if as_json:
        print_json(adopted.document())
    else:
        show_adopted(console, adopted.document())

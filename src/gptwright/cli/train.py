"""`gptwright train`."""

from typing import Any

import click

from gptwright.cli.options import (
    SCHEMA_OPTIONS,
    hook_option,
    json_option,
    overrides,
    print_json,
    schema_options,
    split_arguments,
)
from gptwright.config.load import load_config, preset_names


@click.command(
    context_settings=SCHEMA_OPTIONS,
    epilog=f"Presets: {', '.join(preset_names())}.",
    help="""Train a GPT and write a run folder.

    CONFIG is a preset's name, a TOML file, or a nanoGPT-style Python file (read as data, never executed);
    later ones win, and --field=value wins over all. Ctrl-C finishes the step, saves, and says how to go on.
    """,
)
@click.argument("config", nargs=-1, type=click.UNPROCESSED)
@click.option("--plain", is_flag=True, help="nanoGPT's lines instead of the progress bar.")
@hook_option
@json_option
@schema_options
def command(config: tuple[str, ...], plain: bool, hook: str | None, as_json: bool, **fields: Any) -> None:
    """Trains a new run, or goes on with `init_from=resume` as nanoGPT does."""
    from gptwright.cli.training import resume_and_show, train_and_show
    from gptwright.report.terminal import console_for

    sources, unknown = split_arguments(config)
    loaded = load_config(sources, overrides(fields, unknown))
    console = console_for(stderr=as_json)
    if loaded.config.init_from == "resume":
        document = resume_and_show(loaded, console, checkpoint=None, plain=plain, hook=hook)
    else:
        document = train_and_show(loaded, console, plain=plain, hook=hook)
    if as_json:
        print_json(document)

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
    Several devices: torchrun --nproc_per_node=N -m gptwright train CONFIG.
    """,
)
@click.argument("config", nargs=-1, type=click.UNPROCESSED)
@click.option("--plain", is_flag=True, help="nanoGPT's lines instead of the progress bar.")
@hook_option
@json_option
@schema_options
def command(config: tuple[str, ...], plain: bool, hook: str | None, as_json: bool, **fields: Any) -> None:
    """Trains a new run, or goes on with `init_from=resume` as nanoGPT does."""
    from gptwright.train.distributed import joined_world

    sources, unknown = split_arguments(config)
    with joined_world() as world:
        loaded = load_config(sources, overrides(fields, unknown))

        from gptwright.cli.training import train_and_show
        from gptwright.report.terminal import console_for

        console = console_for(stderr=as_json, quiet=not world.is_first, outlives=True)
        document = train_and_show(loaded, console, plain=plain, hook=hook, world=world)
        if as_json and world.is_first:
            print_json(document)

"""`gptwright resume`."""

from pathlib import Path
from typing import Any

import click

from gptwright.cli.options import (
    SCHEMA_OPTIONS,
    changed_settings,
    hook_option,
    json_option,
    overrides,
    print_json,
    refuse_out_dir,
    split_arguments,
)
from gptwright.record.run import RunFolder


@click.command(
    context_settings=SCHEMA_OPTIONS,
    help="""Go on exactly where a run stopped, from its newest whole checkpoint.

    The run's own settings are used; --field=value changes those that neither the weights nor the order of
    the data depend on, such as max_iters or the split of a step into micro-batches. Others are refused.
    """,
)
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--checkpoint", metavar="NAME", help="An older checkpoint, or `best`; later ones are removed.")
@click.option("--allow-lr-jump", is_flag=True, help="Let the learning rate jump up where the run goes on.")
@click.option("--plain", is_flag=True, help="nanoGPT's lines instead of the progress bar.")
@hook_option
@json_option
@changed_settings
def command(
    run: Path,
    unknown: tuple[str, ...],
    checkpoint: str | None,
    allow_lr_jump: bool,
    plain: bool,
    hook: str | None,
    as_json: bool,
    **fields: Any,
) -> None:
    """Resumes a run."""
    from gptwright.train.distributed import joined_world

    positional, options = split_arguments(unknown)
    if positional:
        raise click.UsageError(f"resume takes one run folder; also given: {' '.join(positional)}")
    given = overrides(fields, options)
    refuse_out_dir(given, str(run))
    with joined_world() as world:
        if world.is_first:
            # Answered before torch is imported.
            RunFolder.existing(run)

        from gptwright.cli.training import resume_and_show
        from gptwright.report.terminal import console_for
        from gptwright.train.settle import run_settings

        document = resume_and_show(
            run_settings(RunFolder(run), given | {"out_dir": str(run)}, world=world),
            console_for(stderr=as_json, quiet=not world.is_first, outlives=True),
            checkpoint=checkpoint,
            plain=plain,
            hook=hook,
            allow_lr_jump=allow_lr_jump,
            world=world,
        )
        if as_json and world.is_first:
            print_json(document)

"""`gptwright eval`."""

from pathlib import Path

import click

from gptwright.cli.options import device_option, json_option, print_json


@click.command(
    help="""Measure a run on a text: loss with its standard error, perplexity, bits per byte.

    The text is the whole validation split of the run's dataset, or --text FILE. Windows of block_size lie end
    to end unless --stride says otherwise. The result goes into the run's metrics.jsonl.
    """
)
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--text", type=click.Path(path_type=Path), help="A UTF-8 file to measure on.")
@click.option("--dataset", metavar="NAME", help="Take the validation split of this dataset instead.")
@click.option(
    "--stride",
    type=int,
    help="Tokens between windows' starts; fewer give more context and cost more.  [default: block_size]",
)
@click.option("--max-windows", type=click.IntRange(min=1), help="Only so many windows, drawn by the seed.")
@click.option("--checkpoint", metavar="NAME", help="A checkpoint's name, `last` or `best`.  [default: best]")
@device_option
@json_option
def command(
    run: Path,
    text: Path | None,
    dataset: str | None,
    stride: int | None,
    max_windows: int | None,
    checkpoint: str | None,
    device: str,
    as_json: bool,
) -> None:
    """Scores a run under a progress bar."""
    from rich.progress import Progress

    from gptwright.record.run import RunFolder
    from gptwright.report.interop import show_score
    from gptwright.report.terminal import console_for
    from gptwright.train.score import score_run

    if text is not None and dataset is not None:
        raise click.UsageError("--text and --dataset name two texts; give one")
    console = console_for(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("windows", total=None)
        document = score_run(
            RunFolder.existing(run),
            text=text,
            dataset=dataset,
            stride=stride,
            max_windows=max_windows,
            checkpoint=checkpoint,
            device=device,
            progress=lambda done, every: bar.update(task, completed=done, total=every),
        )
    if as_json:
        print_json(document)
    else:
        show_score(console_for(), document)

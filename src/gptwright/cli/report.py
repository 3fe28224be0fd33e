"""`gptwright report`."""

from pathlib import Path

import click

from gptwright.cli.facts import fact_options
from gptwright.cli.options import json_option, print_json
from gptwright.errors import ConfigError


@click.command(
    help="""Make one HTML page of a run, or of several side by side: findings, curves, settings.

    RUN is as for diagnose: a run folder, or any trainer's folder or log. The page needs nothing beside it and
    loads nothing: it can be mailed and opens offline. Facts that are given as options hold for every run.
    """
)
@click.argument("runs", nargs=-1, metavar="RUN...")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="The file to write.  [default: report.html in the folder of the only run, else here]",
)
@click.option(
    "--plots", type=click.Path(path_type=Path), help="Also write every plot as SVG and PNG to a folder."
)
@fact_options
@json_option
def command(
    runs: tuple[str, ...], out: Path | None, plots: Path | None, as_json: bool, **facts: str | None
) -> None:
    """Writes the report."""
    from gptwright.record.open_run import open_run
    from gptwright.report.material import gather
    from gptwright.report.page import page_figures, write_report
    from gptwright.report.pictures import write_pictures

    if not runs:
        raise ConfigError(
            "report needs a run", fix="gptwright report FOLDER, or a log file, or - for standard input"
        )
    materials = [gather(open_run(run, facts)) for run in runs]
    path = out or default_path(runs)
    write_report(path, materials)
    if not as_json:
        click.echo(f"wrote {path}")
    pictures = write_pictures(page_figures(materials), plots) if plots is not None else []
    if as_json:
        plotted = [str(picture) for picture in pictures]
        print_json({"schema": "gptwright.report/1", "report": str(path), "plots": plotted})
        return
    for picture in pictures:
        click.echo(f"wrote {picture}")


def default_path(runs: tuple[str, ...]) -> Path:
    """report.html inside the only run's folder, else in the working directory."""
    from gptwright.record.run import RunFolder

    only = Path(runs[0])
    return RunFolder(only).report_path if len(runs) == 1 and only.is_dir() else Path("report.html")

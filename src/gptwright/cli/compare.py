"""`gptwright compare`."""

import click

from gptwright.cli.options import json_option, print_json
from gptwright.errors import ConfigError


@click.command(
    help="""Say what differs between runs, whether they can be compared, and who is ahead beyond the noise.

    RUN is as for diagnose. A change is credited only if it is the only one. With more than two runs each is
    compared with the first. Exit status 1 if one of them cannot be.
    """
)
@click.argument("runs", nargs=-1, metavar="RUN RUN...")
@json_option
def command(runs: tuple[str, ...], as_json: bool) -> None:
    """Compares runs."""
    from gptwright.diagnose.compare import compare
    from gptwright.diagnose.reading import read_run
    from gptwright.record.open_run import open_run
    from gptwright.report.comparison import show_comparison, show_runs
    from gptwright.report.documents import comparison_document, run_summary
    from gptwright.report.terminal import console_for

    if len(runs) < 2:
        raise ConfigError("compare needs two runs or more", fix="gptwright compare RUN RUN")
    readings = [read_run(open_run(run)) for run in runs]
    comparisons = [compare(readings[0], other) for other in readings[1:]]
    if as_json:
        document = comparison_document(comparisons[0])
        if len(runs) > 2:
            document["runs"] = [{"run": r, **run_summary(x)} for r, x in zip(runs, readings, strict=True)]
            document["pairs"] = [
                {"a": runs[0], "b": run, **comparison_document(c)}
                for run, c in zip(runs[1:], comparisons, strict=True)
            ]
        print_json(document)
    else:
        console = console_for()
        show_runs(console, runs, readings)
        for run, comparison in zip(runs[1:], comparisons, strict=True):
            show_comparison(console, comparison, (runs[0], run))
    if not all(comparison.comparable for comparison in comparisons):
        raise click.exceptions.Exit(1)

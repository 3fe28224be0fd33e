"""`gptwright diagnose`."""

import click

from gptwright.cli.facts import fact_options
from gptwright.cli.options import json_option, print_json
from gptwright.errors import ConfigError

SEVERITIES = ("error", "warning", "info")


@click.command(
    help="""Say what the numbers of a run say, with the line each claim comes from.

    RUN is a run folder, or any folder or log file from nanoGPT, llm.c, nanochat, modded-nanogpt, litgpt,
    Hugging Face Trainer, torchtitan and others; - is standard input. A config.py or config.toml and a
    facts.toml beside the log are read too. No GPU and no torch is needed.
    """
)
@click.argument("run", required=False)
@fact_options
@click.option("--explain", metavar="ID", help="The reasoning and sources behind a finding, and nothing else.")
@click.option(
    "--fail-on", type=click.Choice(SEVERITIES), help="Exit with 1 if a finding is at least this severe."
)
@json_option
def command(
    run: str | None, explain: str | None, fail_on: str | None, as_json: bool, **facts: str | None
) -> None:
    """Reads a run and prints its diagnosis."""
    from gptwright.diagnose import engine
    from gptwright.diagnose.reading import read_run
    from gptwright.findings import Severity
    from gptwright.record.open_run import open_run
    from gptwright.report.diagnosis import show_diagnosis
    from gptwright.report.documents import diagnosis_document
    from gptwright.report.terminal import console_for

    if explain is not None:
        click.echo(engine.explain(explain))
        return
    if run is None:
        raise ConfigError(
            "diagnose needs a run", fix="gptwright diagnose FOLDER, or a log file, or - for standard input"
        )
    diagnosis = engine.diagnose(read_run(open_run(run, facts)))
    if as_json:
        print_json(diagnosis_document(diagnosis))
    else:
        show_diagnosis(console_for(), diagnosis)
    if fail_on is not None:
        limit = Severity(fail_on).rank
        if any(finding.severity.rank <= limit for finding in diagnosis.findings):
            raise click.exceptions.Exit(1)

"""`gptwright demo`."""

import itertools
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gptwright.cli.options import json_option, print_json
from gptwright.errors import DataError, typed

if TYPE_CHECKING:
    from rich.console import Console

SAMPLE_TOKENS = 400


@click.command(
    help="""The whole story in a few minutes on a laptop CPU: data, plan, training, sample, diagnosis, report.

    Trains on Tiny Shakespeare, by download or from --from FILE; without either, on the source code of the
    Python that runs this.
    """
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default="gptwright-demo",
    show_default=True,
    help="Folder to write.",
)
@click.option("--from", "from_file", type=click.Path(path_type=Path), help="A copy of Tiny Shakespeare.")
@click.option("--plain", is_flag=True, help="nanoGPT's lines instead of the progress bar.")
@json_option
def command(out: Path, from_file: Path | None, plain: bool, as_json: bool) -> None:
    """Prepares, trains, samples, diagnoses and reports, showing every step."""
    from rich.markup import escape

    from gptwright.cli.training import train_and_show
    from gptwright.config.load import load_config
    from gptwright.record.open_run import open_run
    from gptwright.record.run import RunFolder
    from gptwright.report.diagnosis import show_diagnosis
    from gptwright.report.documents import diagnosis_document
    from gptwright.report.material import gather
    from gptwright.report.page import write_report
    from gptwright.report.terminal import console_for
    from gptwright.train.speak import Speaker
    from gptwright.train.world import require_one_process

    require_one_process("demo")
    console = console_for(stderr=as_json, outlives=True)
    dataset = _dataset(out, from_file, console)
    folder = next(path for number in itertools.count(1) if not (path := out / f"run-{number}").exists())
    loaded = load_config(["demo"], {"dataset": str(dataset), "out_dir": str(folder)})
    document = train_and_show(loaded, console, plain=plain)
    if document["ending"] == "finished":
        speaker = Speaker.of(folder)
        text = "".join(speaker.speak(max_new_tokens=SAMPLE_TOKENS))
        RunFolder(folder).save_sample(speaker.checkpoint, text)
        console.print("\n[bold]a sample[/]")
        console.out(text, highlight=False)
        console.print(f"\nmore of it: gptwright sample {escape(typed(folder))}", soft_wrap=True)
        document["sample"] = text
    material = gather(open_run(str(folder)))
    console.print()
    show_diagnosis(console, material.diagnosis)
    document["diagnosis"] = diagnosis_document(material.diagnosis)
    report = RunFolder(folder).report_path
    write_report(report, [material])
    console.print(f"\nthe whole run as a page, for your browser: {escape(str(report))}", soft_wrap=True)
    document["report"] = str(report)
    if as_json:
        print_json(document)


def _dataset(out: Path, from_file: Path | None, console: "Console") -> Path:
    """Tiny Shakespeare's characters if they can be had, else the standard library's source."""
    from rich.markup import escape

    from gptwright.data.prepare import prepare
    from gptwright.report.prepared import show_prepared

    try:
        source, target = "shakespeare", out / "shakespeare_char"
        report = prepare(source, out=target, tokenizer="char", from_file=from_file)
    except DataError as error:
        if from_file is not None:
            raise
        console.print(f"[yellow]Tiny Shakespeare cannot be had:[/] {escape(error.problem)}")
        console.print("The demo trains on the source of this Python's standard library instead.\n")
        source, target = "pystdlib", out / "pystdlib_char"
        report = prepare(source, out=target, tokenizer="char")
    show_prepared(console, report)
    console.print()
    return target

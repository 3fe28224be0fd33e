"""`gptwright bench`."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gptwright.bench.workloads import WORKLOADS
from gptwright.cli.options import json_option, print_json
from gptwright.errors import ConfigError

if TYPE_CHECKING:
    from gptwright.bench.trainers import Others

NAMES = "".join(f"\n      {name:<17} {work.about}" for name, work in WORKLOADS.items())


@click.command(
    help=f"""Measure this machine, and gptwright beside other trainers in the same run.

    Without WORKLOAD it measures peaks and the workload that fits the device here. With --against
    nanogpt=PATH an unchanged checkout of nanoGPT does the same work in turns, eager and compiled, and with
    --against hf-trainer, on a CPU, Hugging Face's Trainer with its GPT-2; the figures are medians over the
    rounds, and ratios the medians of each round's ratio.

    \b
    Workloads:{NAMES}
    """
)
@click.argument("workload", nargs=-1, type=click.Choice(list(WORKLOADS)), metavar="[WORKLOAD]...")
@click.option(
    "--against",
    metavar="TRAINER",
    multiple=True,
    help="Whom to run beside ours: nanogpt=PATH, a checkout, or hf-trainer; may be given twice.",
)
@click.option("--rounds", type=click.IntRange(min=1), default=3, show_default=True, help="Turns of each.")
@click.option(
    "--text",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="What to train on, such as Tiny Shakespeare. Default: Python's standard library.",
)
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Write the figures as JSON.")
@json_option
def command(
    workload: tuple[str, ...],
    against: tuple[str, ...],
    rounds: int,
    text: Path | None,
    out: Path | None,
    as_json: bool,
) -> None:
    """Runs the workloads and prints a table of each."""
    from gptwright.bench.machine import measure_peaks
    from gptwright.bench.results import bench_document
    from gptwright.bench.rounds import run_rounds
    from gptwright.files import replace_text, unwritable_as_error
    from gptwright.hardware.detect import find_device
    from gptwright.report.bench import show_peaks, show_rows
    from gptwright.report.terminal import console_for

    others = _others(against)
    device = find_device("auto")
    peaks = measure_peaks(device)
    if not as_json:
        show_peaks(console_for(), peaks)
    results: dict[str, Any] = {}
    default = ("gpt2-cuda",) if device.type == "cuda" else ("laptop",)
    for name in workload or default:
        results[name] = run_rounds(
            WORKLOADS[name],
            rounds=rounds,
            peak_flops=peaks.matmul_flops,
            others=others,
            text=text,
            said=lambda line: click.echo(line, err=True),
        )
        if not as_json:
            show_rows(console_for(), name, WORKLOADS[name].about, results[name])
    document = bench_document(peaks, results, rounds=rounds)
    if out is not None:
        with unwritable_as_error(out):
            replace_text(out, json.dumps(document, indent=2) + "\n")
    if as_json:
        print_json(document)


def _others(against: tuple[str, ...]) -> "Others":
    from gptwright.bench.trainers import Others

    checkout, hf_trainer = None, False
    for given in against:
        name, _, path = given.partition("=")
        if name == "nanogpt" and path and checkout is None:
            checkout = Path(path)
        elif given == "hf-trainer":
            hf_trainer = True
        else:
            raise ConfigError(
                f"--against={given} cannot be used",
                why="it takes nanogpt=PATH once, and hf-trainer",
                fix="--against nanogpt=nanoGPT --against hf-trainer",
            )
    return Others(nanogpt=checkout, hf_trainer=hf_trainer)

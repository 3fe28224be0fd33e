"""`gptwright bench`."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gptwright.bench.suite import SUITES, Suite
from gptwright.bench.workloads import WORKLOADS
from gptwright.cli.options import json_option, print_json
from gptwright.errors import ConfigError
from gptwright.files import replace_text, unwritable_as_error

if TYPE_CHECKING:
    from gptwright.bench.trainers import Others

ABOUT = {name: work.about for name, work in WORKLOADS.items()}
ABOUT |= {name: f"{suite.about}, within {suite.minutes:g} minutes" for name, suite in SUITES.items()}
NAMES = "".join(f"\n      {name:<17} {about}" for name, about in ABOUT.items())


@click.command(
    help=f"""Measure this machine, and gptwright beside other trainers in the same run.

    Without WORKLOAD it measures peaks and the workload that fits the device here. With --against
    nanogpt=PATH an unchanged checkout of nanoGPT does the same work in turns, eager and compiled, and with
    --against hf-trainer, on a CPU, Hugging Face's Trainer with its GPT-2; the figures are medians over the
    rounds, and ratios the medians of each round's ratio.

    `gptwright bench gpu --against nanogpt=PATH --out FILE` is the whole comparison on one GPU, within
    --minutes: 124M and 350M, several micro-batches, eager and compiled, memory, a race for the lower loss.

    \b
    Workloads:{NAMES}
    """
)
@click.argument("workload", nargs=-1, type=click.Choice(list(ABOUT)), metavar="[WORKLOAD]...")
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
    help="What to train on, such as Tiny Shakespeare. Default: Python's standard library; for those with a"
    " budget, the source of the installed packages too.",
)
@click.option(
    "--minutes",
    type=click.FloatRange(min=0, min_open=True),
    help="For the workloads that have a budget: what does not fit is left out and named.",
)
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Write the figures as JSON.")
@json_option
def command(
    workload: tuple[str, ...],
    against: tuple[str, ...],
    rounds: int,
    text: Path | None,
    minutes: float | None,
    out: Path | None,
    as_json: bool,
) -> None:
    """Runs the workloads and prints a table of each."""
    others = _others(against)
    asked = [name for name in workload if name in SUITES]
    if asked:
        if len(workload) > 1 or others.hf_trainer:
            raise ConfigError(
                f"{asked[0]} takes no other workload and no hf-trainer beside it",
                why="it shares its minutes out by itself",
                fix=f"gptwright bench {asked[0]} --against nanogpt=nanoGPT",
            )
        document = _suite(SUITES[asked[0]], others, minutes, text, as_json=as_json)
    else:
        document = _workloads(workload, others, rounds, text, as_json=as_json)
    if out is not None:
        with unwritable_as_error(out):
            replace_text(out, json.dumps(document, indent=2) + "\n")
    if as_json:
        print_json(document)


def _suite(
    suite: Suite, others: "Others", minutes: float | None, text: Path | None, *, as_json: bool
) -> dict[str, Any]:
    from gptwright.bench.budget import run_suite
    from gptwright.report.bench import show_suite
    from gptwright.report.terminal import console_for

    result = run_suite(
        suite,
        seconds=60 * (suite.minutes if minutes is None else minutes),
        nanogpt=others.nanogpt,
        text=text,
        said=lambda line: click.echo(line, err=True),
    )
    if not as_json:
        show_suite(console_for(), result)
    return result.document()


def _workloads(
    workload: tuple[str, ...], others: "Others", rounds: int, text: Path | None, *, as_json: bool
) -> dict[str, Any]:
    from gptwright.bench.machine import measure_peaks, peak_now
    from gptwright.bench.results import bench_document
    from gptwright.bench.rounds import run_rounds
    from gptwright.hardware.detect import find_device
    from gptwright.report.bench import show_peaks, show_rows
    from gptwright.report.terminal import console_for

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
            peak=lambda: peak_now(device, peaks.dtype),
            others=others,
            text=text,
            said=lambda line: click.echo(line, err=True),
        )
        if not as_json:
            show_rows(console_for(), name, WORKLOADS[name].about, results[name])
    return bench_document(peaks, results, rounds=rounds)


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

"""`gptwright sample`."""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gptwright.cli.options import json_option, print_json
from gptwright.errors import ConfigError

if TYPE_CHECKING:
    from gptwright.train.speak import Speaker


@click.command(
    help="""Generate text from a run, as a stream.

    Options have the names of nanoGPT's sample.py; `--out_dir RUN` is understood too.
    """,
    context_settings={"token_normalize_func": lambda name: name.replace("-", "_")},
)
@click.argument("run", type=click.Path(path_type=Path), required=False)
@click.option("--out_dir", type=click.Path(path_type=Path), help="The run, as nanoGPT names it.")
@click.option("--start", metavar="TEXT", help="The prompt, or FILE:prompt.txt.")
@click.option("--num_samples", type=click.IntRange(min=1), default=1, show_default=True)
@click.option("--max_new_tokens", type=click.IntRange(min=1), default=500, show_default=True)
@click.option("--temperature", type=float, default=0.8, show_default=True, help="0: greedy.")
@click.option("--top_k", type=click.IntRange(min=1), default=200, show_default=True)
@click.option("--top_p", type=float, help="Keep the likeliest tokens that reach this probability.")
@click.option("--seed", type=click.IntRange(0, 2**63 - 1), default=1337, show_default=True)
@click.option("--stop", metavar="TEXT", help="End a sample where this text appears.")
@click.option("--checkpoint", metavar="NAME", help="A checkpoint's name, `last` or `best`.  [default: best]")
@click.option("--device", default="auto", show_default=True)
@click.option(
    "--cache/--no_cache", default=True, help="--no_cache recomputes the context: the slow reference."
)
@json_option
def command(run: Path | None, out_dir: Path | None, as_json: bool, num_samples: int, **options: Any) -> None:
    """Streams samples, or returns them as JSON."""
    from gptwright.train.speak import Speaker

    folder = run or out_dir
    if folder is None:
        raise click.UsageError("name the run folder: gptwright sample RUN")
    speaker = Speaker.of(folder, checkpoint=options.pop("checkpoint"), device=options.pop("device"))
    options["start"] = None if options["start"] is None else _prompt(options["start"])
    samples = [
        _sample(speaker, options | {"seed": options["seed"] + number}, quiet=as_json)
        for number in range(num_samples)
    ]
    if as_json:
        document = {"schema": "gptwright.sample/1", "run": str(folder), "checkpoint": speaker.checkpoint}
        print_json(document | {"samples": samples})


def _sample(speaker: "Speaker", options: dict[str, Any], *, quiet: bool) -> dict[str, Any]:
    """Generates one sample, printing it as it comes unless `quiet`."""
    if not quiet and options["start"]:
        click.echo(options["start"], nl=False)
    begin = time.perf_counter()
    pieces = []
    for piece in speaker.speak(**options):
        pieces.append(piece)
        if not quiet:
            sys.stdout.write(piece)
            sys.stdout.flush()
    seconds = time.perf_counter() - begin
    if not quiet:
        sys.stdout.write("\n")
        click.echo(
            f"--- {speaker.tokens} tokens in {seconds:.2f} s, {speaker.tokens / seconds:.1f} tokens/s"
            f" ({speaker.checkpoint}, seed {options['seed']})",
            err=True,
        )
    return {
        "prompt": options["start"],
        "text": "".join(pieces),
        "tokens": speaker.tokens,
        "seconds": seconds,
        "tokens_per_second": speaker.tokens / seconds,
        "seed": options["seed"],
    }


def _prompt(start: str) -> str:
    """The prompt itself, or the content of the file that `FILE:` names."""
    if not start.startswith("FILE:"):
        return start
    path = Path(start.removeprefix("FILE:"))
    try:
        return path.read_bytes().decode("utf-8")
    except OSError as error:
        raise ConfigError(f"the prompt file {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"the prompt file {path} is not UTF-8: byte {error.start}") from None

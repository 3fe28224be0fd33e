"""`gptwright sample`."""

import sys
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gptwright.cli.options import device_option, json_option, print_json
from gptwright.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gptwright.train.speak import Sample

# Where nanoGPT's sample.py looks, and where `train` puts a run, if nobody says otherwise.
DEFAULT_OUT = "out"


@click.command(
    help="""Generate text from a run, as a stream.

    Options have the names of nanoGPT's sample.py; `--out_dir RUN` is understood too. Several samples are
    decoded side by side, and what one says does not depend on the others.
    """,
    context_settings={"token_normalize_func": lambda name: name.replace("-", "_")},
)
@click.argument("run", type=click.Path(path_type=Path), required=False)
@click.option("--out_dir", type=click.Path(path_type=Path), help="The run, as nanoGPT names it.")
@click.option("--init_from", default="resume", hidden=True, help="nanoGPT's; `resume` alone has a run.")
@click.option("--dtype", hidden=True, help="nanoGPT's; decoding is in float32.")
@click.option("--compile", hidden=True, help="nanoGPT's; decoding is not compiled.")
@click.option(
    "--start",
    metavar="TEXT",
    multiple=True,
    help="The prompt, or FILE:prompt.txt, or LINES:prompts.txt with one a line; may be given several times.",
)
@click.option(
    "--num_samples", type=click.IntRange(min=1), default=1, show_default=True, help="Samples of each prompt."
)
@click.option(
    "--batch_size", type=click.IntRange(min=1), default=16, show_default=True, help="Samples side by side."
)
@click.option(
    "--max_new_tokens",
    type=click.IntRange(min=1),
    default=500,
    show_default=True,
    help="Length of a sample, at most.",
)
@click.option(
    "--temperature",
    type=float,
    default=0.8,
    show_default=True,
    help="Below 1 the likely tokens gain; 0 takes the likeliest.",
)
@click.option(
    "--top_k", type=click.IntRange(min=1), default=200, show_default=True, help="Keep the k likeliest tokens."
)
@click.option("--top_p", type=float, help="Keep the likeliest tokens that reach this probability.")
@click.option(
    "--seed",
    type=click.IntRange(0, 2**63 - 1),
    default=1337,
    show_default=True,
    help="Seed of a prompt's first sample; the next ones count on.",
)
@click.option("--stop", metavar="TEXT", help="End a sample where this text appears.")
@click.option("--checkpoint", metavar="NAME", help="A checkpoint's name, `last` or `best`.  [default: best]")
@device_option
@click.option(
    "--cache/--no_cache", default=True, help="--no_cache recomputes the context: the slow reference."
)
@json_option
def command(
    run: Path | None,
    out_dir: Path | None,
    init_from: str,
    dtype: str | None,
    compile: str | None,  # noqa: A002, nanoGPT's name
    as_json: bool,
    start: tuple[str, ...],
    num_samples: int,
    seed: int,
    **options: Any,
) -> None:
    """Streams samples, or returns them as JSON."""
    if init_from != "resume":
        raise ConfigError(
            f"sample takes a run, and --init_from={init_from} names weights",
            fix=f"gptwright import {init_from} --out DIR, then gptwright sample DIR",
        )
    if dtype not in (None, "float32") or compile not in (None, "False"):
        click.echo("decoding is in float32 and not compiled; --dtype and --compile change nothing", err=True)
    from gptwright.train.speak import Sample, Speaker

    folder = run or out_dir or Path(DEFAULT_OUT)
    if not (run or out_dir or folder.exists()):
        raise click.UsageError("name the run folder: gptwright sample RUN")
    speaker = Speaker.of(folder, checkpoint=options.pop("checkpoint"), device=options.pop("device"))
    prompts = [prompt for given in start for prompt in _prompts(given)] if start else [None]
    samples = [Sample(start=prompt, seed=seed + n) for prompt in prompts for n in range(num_samples)]
    begin = time.perf_counter()
    pieces = speaker.speak_all(samples, **options)
    if as_json:
        deque(pieces, maxlen=0)
    else:
        _show(samples, pieces, speaker.checkpoint)
    seconds = time.perf_counter() - begin
    tokens = sum(sample.tokens for sample in samples)
    if as_json:
        print_json(
            {
                "schema": "gptwright.sample/1",
                "run": str(folder),
                "checkpoint": speaker.checkpoint,
                "samples": [_document(sample) for sample in samples],
                "tokens_per_second": tokens / seconds,
            }
        )
    elif len(samples) > 1:
        click.echo(
            f"--- together {tokens} tokens in {seconds:.2f} s, {tokens / seconds:.1f} tokens/s", err=True
        )


def _show(samples: "Sequence[Sample]", pieces: "Iterable[tuple[Sample, str]]", checkpoint: str) -> None:
    """Prints samples in their order: the first that has not ended as it comes, later ones when it has."""
    waiting = deque(samples)
    printed: int | None = None  # characters of the first one in line; None before its prompt is
    for _ in pieces:
        while waiting:
            sample = waiting[0]
            if printed is None:
                sys.stdout.write(sample.start or "")
            sys.stdout.write(sample.text[printed or 0 :])
            printed = len(sample.text)
            if sample.ended:
                sys.stdout.write("\n")
            sys.stdout.flush()
            if not sample.ended:
                break
            click.echo(
                f"--- {sample.tokens} tokens in {sample.seconds:.2f} s,"
                f" {sample.tokens / sample.seconds:.1f} tokens/s ({checkpoint}, seed {sample.seed})",
                err=True,
            )
            waiting.popleft()
            printed = None


def _document(sample: "Sample") -> dict[str, Any]:
    return {
        "prompt": sample.start,
        "text": sample.text,
        "tokens": sample.tokens,
        "seconds": sample.seconds,
        "tokens_per_second": sample.tokens / sample.seconds,
        "seed": sample.seed,
    }


def _prompts(given: str) -> list[str]:
    """The prompt itself, or what the file holds that `FILE:` or `LINES:` names."""
    kind, _, name = given.partition(":")
    if kind not in ("FILE", "LINES"):
        return [given]
    path = Path(name)
    try:
        text = path.read_bytes().decode("utf-8")
    except OSError as error:
        raise ConfigError(f"the prompt file {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"the prompt file {path} is not UTF-8: byte {error.start}") from None
    if kind == "FILE":
        return [text]
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        raise ConfigError(f"the prompt file {path} has no line with a prompt", fix="write one prompt a line")
    return lines

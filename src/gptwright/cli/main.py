"""The `gptwright` command: finds the verb, and turns errors into one message and an exit status.

Exit status: 0 done; 1 it ran and the answer is bad; 2 the input was bad. Verbs are imported when they are
called, so that help starts in a blink.
"""

import difflib
import gc
import importlib
import keyword
import os
import signal
import sys
from collections.abc import Sequence

import click

from gptwright import __version__
from gptwright.errors import GptwrightError, PeerFailedError

VERBS = {
    "demo": "the whole story in a few minutes: data, plan, training, a sample, diagnosis, report",
    "env": "what this machine can do, with every choice and its reason",
    "prepare": "text, Parquet, JSONL, a repository or a named corpus to a token dataset",
    "inspect": "what a token dataset holds; --verify checks every byte",
    "plan": "parameters, memory, batch, speed, time, tokens and loss, before anything is spent",
    "train": "train a GPT; writes a run folder",
    "resume": "go on exactly where a run stopped",
    "sample": "generate text from a run",
    "eval": "loss with its error, perplexity and bits per byte, on validation or any text",
    "diagnose": "what the numbers of a run say, with evidence; any trainer's log",
    "compare": "what differs between runs, and who is ahead beyond the noise",
    "bench": "this machine's peaks; this trainer beside another one, in the same run",
    "report": "one HTML page of a run or of several, that opens offline and can be mailed",
    "watch": "all runs of a folder in the browser, live; and the diagnosis of a pasted log",
    "import": "a checkpoint of nanoGPT, llm.c or Hugging Face's GPT-2 to a run folder",
    "export": "a run to Hugging Face, nanoGPT or GGUF",
}


# Packages that the base install does without, and the extra that brings them.
EXTRAS = {
    **dict.fromkeys(("torch", "safetensors", "psutil", "tiktoken", "tokenizers"), "train"),
    **dict.fromkeys(("starlette", "uvicorn"), "serve"),
}


class Verbs(click.Group):
    """A group whose commands are the modules of this package, imported on use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All verbs, in the order of a first session."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command:
        """The command of a verb."""
        if cmd_name not in VERBS:
            near = difflib.get_close_matches(cmd_name, VERBS, n=1)
            ctx.fail(
                f"there is no verb {cmd_name!r}"
                + (f"; did you mean {near[0]!r}?" if near else f"; verbs are {', '.join(VERBS)}")
            )
        # `import` is a word of Python's, and no module can be called that.
        module = f"{cmd_name}_" if keyword.iskeyword(cmd_name) else cmd_name
        command = importlib.import_module(f"gptwright.cli.{module}").command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The verbs with their one line each, without importing them."""
        with formatter.section("Verbs"):
            formatter.write_dl(list(VERBS.items()))


@click.command(
    cls=Verbs,
    subcommand_metavar="VERB [ARGS]...",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="gptwright VERB --help says what a verb takes. To begin: gptwright demo.",
)
@click.version_option(__version__, prog_name="gptwright")
def gptwright() -> None:
    """Train small GPTs on the machine you have, and know what every number means."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line and exits with its status."""
    status = run(arguments)
    # All is said and done; another Ctrl-C would only be answered by a traceback.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # What is still there lives to the end; looking through torch for garbage once more would take 0.7 s.
    gc.freeze()
    sys.exit(status)


def run(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; returns the exit status."""
    try:
        # What a verb returns is None; click returns the status of an `Exit`.
        return gptwright.main(args=arguments, prog_name="gptwright", standalone_mode=False) or 0
    except GptwrightError as error:
        if not isinstance(error, PeerFailedError):
            from gptwright.report.terminal import show_error

            show_error(error)
        return error.exit_status
    except click.ClickException as error:
        error.show()
        return 2
    except ModuleNotFoundError as error:
        if error.name not in EXTRAS:
            raise
        click.echo(f"error: this needs the package {error.name}, which is not installed", err=True)
        click.echo(f"  fix: pip install 'gptwright[{EXTRAS[error.name]}]'", err=True)
        return 2
    except (KeyboardInterrupt, click.Abort):
        click.echo("stopped", err=True)
        return 130
    except BrokenPipeError:
        # Whoever read our output has gone; a traceback would only be noise. Nothing more can be flushed.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0

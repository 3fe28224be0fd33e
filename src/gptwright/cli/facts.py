"""The facts about a run that no log and no config says, as options of several verbs."""

from collections.abc import Callable

import click

from gptwright.cli.options import Command
from gptwright.record.stated import FACTS


def fact_option(name: str) -> Callable[[Command], Command]:
    """Adds the option of one fact, such as `--train-tokens VALUE`."""
    known = FACTS[name]
    return click.option(
        f"--{name.replace('_', '-')}",
        name,
        type=str,
        metavar="VALUE",
        help=f"Fact: {known.description}.",
    )


def fact_options(command: Command) -> Command:
    """Adds `--device NAME` and so on."""
    for name in reversed(list(FACTS)):
        command = fact_option(name)(command)
    return command

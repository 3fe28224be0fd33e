"""The facts about a run that no log and no config says, as options of several verbs."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from gptwright.facts import Value

Command = TypeVar("Command", bound=Callable[..., Any])

FACTS: Mapping[str, tuple[type, str]] = {
    "device": (str, "the device, such as 'RTX 4070'"),
    "device_count": (int, "how many of it train together"),
    "train_tokens": (int, "tokens in the training split"),
    "val_tokens": (int, "tokens in the validation split"),
    "vocab_size": (int, "rows of the vocabulary"),
    "dataset": (str, "the corpus, such as fineweb-edu"),
    "torch": (str, "torch's version"),
    "note": (str, "anything that was said about the run"),
}


def fact_options(command: Command) -> Command:
    """Adds `--device NAME` and so on."""
    for name, (kind, text) in reversed(list(FACTS.items())):
        option = click.option(
            f"--{name.replace('_', '-')}", name, type=kind, metavar="VALUE", help=f"Fact: {text}."
        )
        command = option(command)
    return command


def stated_facts(given: Mapping[str, Value]) -> dict[str, Value]:
    """Those that were given."""
    return {name: value for name, value in given.items() if name in FACTS and value is not None}

"""Options that several verbs share: those of the schema, and `--json`."""

import json
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from gptwright.config.schema import FIELDS

Command = TypeVar("Command", bound=Callable[..., Any])

# nanoGPT writes --n_layer, most programs --n-layer; both are the same option here. Unknown ones are left to
# the config's loader, which reports them together with everything else that is wrong.
SCHEMA_OPTIONS = {"token_normalize_func": lambda name: name.replace("-", "_"), "ignore_unknown_options": True}

json_option = click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output.")


def schema_options(command: Command) -> Command:
    """Adds `--field=value` for every field of the schema."""
    for field in reversed(list(FIELDS.values())):
        default = "" if field.default is None else f"  [default: {field.default}]"
        command = click.option(f"--{field.name}", metavar="VALUE", help=f"{field.description}{default}")(
            command
        )
    return command


def overrides(given: dict[str, str | None], unknown: Sequence[str]) -> dict[str, str]:
    """The options that were given, unknown ones (`--name=value`) included."""
    values = {name: value for name, value in given.items() if value is not None}
    for argument in unknown:
        name, _, value = argument.removeprefix("--").partition("=")
        values[name.replace("-", "_")] = value
    return values


def split_arguments(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Positional arguments, and options that click did not know."""
    unknown = [argument for argument in arguments if argument.startswith("--")]
    return [argument for argument in arguments if not argument.startswith("--")], unknown


def print_json(document: Any) -> None:
    """Prints the one JSON document of `--json`."""
    json.dump(document, sys.stdout, indent=2, ensure_ascii=False, allow_nan=False)
    sys.stdout.write("\n")

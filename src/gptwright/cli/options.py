"""Options that several verbs share: those of the schema, and `--json`."""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import click

from gptwright.config.fields import Field
from gptwright.config.schema import FIELDS

Command = TypeVar("Command", bound=Callable[..., Any])

# nanoGPT writes --n_layer, most programs --n-layer; both are the same option here. Unknown ones are left to
# the config's loader, which reports them together with everything else that is wrong.
SCHEMA_OPTIONS = {"token_normalize_func": lambda name: name.replace("-", "_"), "ignore_unknown_options": True}

# Not a setting of a config, so that no file from elsewhere can name a command.
hook_option = click.option(
    "--hook",
    envvar="GPTWRIGHT_HOOK",
    metavar="COMMAND",
    help="Run when the run finishes, fails, stalls or meets a NaN or infinite loss; the facts come as JSON"
    " on its standard input. No shell.  [env: GPTWRIGHT_HOOK]",
)
device_option = click.option(
    "--device", default="auto", show_default=True, help="auto, cpu, cuda, cuda:N or mps."
)
json_option = click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output.")


def schema_options(command: Command) -> Command:
    """Adds `--field=value` for every field of the schema, with its default."""
    for field in reversed(list(FIELDS.values())):
        default = "" if field.default is None else f"  [default: {field.default}]"
        command = _schema_option(field, f"{field.description}{default}")(command)
    return command


def changed_settings(command: Command) -> Command:
    """The same for a run that has its settings already: no defaults, and no other place for it."""
    for field in reversed(list(FIELDS.values())):
        if field.name != "out_dir":
            command = _schema_option(field, field.description)(command)
    # What is no option of the schema is left to the config's loader.
    return click.argument("unknown", nargs=-1, type=click.UNPROCESSED, metavar="[--FIELD=VALUE]...")(command)


def _schema_option(field: Field, text: str) -> Callable[[Command], Command]:
    # A switch may be named without a value, where another option or nothing follows.
    switch: dict[str, Any] = {"is_flag": False, "flag_value": "True"} if field.kind is bool else {}
    return click.option(f"--{field.name}", metavar="|".join(field.words) or "VALUE", help=text, **switch)


def overrides(given: dict[str, str | None], unknown: Sequence[str]) -> dict[str, str]:
    """The options that were given, unknown ones (`--name=value`) included."""
    values = {name: value for name, value in given.items() if value is not None}
    for argument in unknown:
        name, _, value = argument.removeprefix("--").partition("=")
        values[name.replace("-", "_")] = value
    return values


def refuse_out_dir(given: Mapping[str, str], place: str) -> None:
    """Refuses `--out_dir`, which would have no effect where something else says the run's folder."""
    if "out_dir" in given:
        raise click.UsageError(f"--out_dir={given['out_dir']} has no effect: {place} is the run's folder")


def split_arguments(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Positional arguments, and options that click did not know."""
    unknown = [argument for argument in arguments if argument.startswith("--")]
    return [argument for argument in arguments if not argument.startswith("--")], unknown


def print_json(document: Any) -> None:
    """Prints the one JSON document of `--json`."""
    json.dump(document, sys.stdout, indent=2, ensure_ascii=False, allow_nan=False)
    sys.stdout.write("\n")

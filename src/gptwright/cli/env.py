"""`gptwright env`."""

import importlib.util
import sys
from dataclasses import asdict

import click

from gptwright.cli.options import json_option, print_json
from gptwright.errors import DeviceError
from gptwright.facts import Fact


@click.command(
    help="""Say what this machine can do.

    Devices, the precisions that they have in hardware, the compiler, measured matrix-multiply peaks, and
    what training would choose here, each with its reason.
    """
)
@json_option
def command(as_json: bool) -> None:
    """Prints the facts of this machine."""
    from gptwright.report.terminal import console_for, facts_table

    facts = _facts()
    if as_json:
        print_json({"schema": "gptwright.env/1", "facts": [asdict(fact) for fact in facts]})
    else:
        console_for().print(facts_table(facts, title="This machine"))


def _facts() -> list[Fact]:
    if importlib.util.find_spec("torch") is None:
        raise DeviceError(
            "torch is not installed, so no device can be looked at",
            why=f"the Python that runs this is {sys.executable}",
            fix="pip install 'gptwright[train]'",
        )
    from gptwright.hardware.describe import machine_facts
    from gptwright.hardware.detect import find_device
    from gptwright.train.precision import allow_tf32, choose_precision, device_fact

    device = find_device("auto")
    allow_tf32(device)
    _, _, choices = choose_precision(dtype="auto", compile_model="auto", device=device)
    return [*machine_facts(), device_fact(device), *choices]

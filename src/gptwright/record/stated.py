"""The facts that a person can state about a run: what no log and no config says.

They come from `facts.toml`, from options and from our own run.json, and are checked against the few that
there are, because a misspelt fact would silently be no fact.
"""

import contextlib
import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gptwright import units
from gptwright.errors import RunError
from gptwright.facts import Fact, Value, stated

# No corpus has more tokens, and a number of more digits was never one.
LARGEST = 10**18


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A fact that can be stated.

    Attributes:
        type: `str`, or `int` for a whole number above 0.
        example: a line of facts.toml.
        description: the help line of its option.
        unit: as `units.text` knows it.
    """

    type: type
    example: str
    description: str
    unit: str = ""


FACTS: Mapping[str, Known] = {
    "device": Known(type=str, example='device = "RTX 4070"', description="the device, such as 'RTX 4070'"),
    "device_count": Known(
        type=int, example="device_count = 1", description="how many devices train together"
    ),
    "train_tokens": Known(
        type=int,
        example="train_tokens = 9035582198",
        description="tokens in the training split",
        unit="tokens",
    ),
    "val_tokens": Known(
        type=int, example="val_tokens = 4434897", description="tokens in the validation split", unit="tokens"
    ),
    "vocab_size": Known(type=int, example="vocab_size = 50304", description="rows of the vocabulary"),
    "dataset": Known(
        type=str, example='dataset = "openwebtext"', description="the corpus, such as fineweb-edu"
    ),
    "torch": Known(type=str, example='torch = "2.6.0"', description="torch's version"),
    "note": Known(
        type=str, example='note = "resumed twice"', description="anything that was said about the run"
    ),
}


def facts_file(path: Path) -> dict[str, Fact]:
    """The facts of a facts.toml; empty where there is none.

    Raises:
        RunError: it cannot be read, a name is unknown, or a value has the wrong type.
    """
    if not path.is_file():
        return {}
    try:
        document = tomllib.loads(path.read_bytes().decode("utf-8-sig"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise RunError(f"{path} cannot be read: {error}", fix="it is TOML, one fact a line") from None
    return stated_facts(document, str(path))


def stated_facts(values: Mapping[str, object], place: str) -> dict[str, Fact]:
    """Stated facts by name.

    Args:
        values: as they were written.
        place: where, for messages.

    Raises:
        RunError: a name is unknown or a value has the wrong type.
    """
    facts = {}
    for name, value in values.items():
        if name not in FACTS:
            near = difflib.get_close_matches(name, FACTS, n=1, cutoff=0.5)
            raise RunError(
                f"{place} states {name!r}, which is no fact that is known here",
                fix=f"did you mean {near[0]}?" if near else f"facts are {', '.join(FACTS)}",
            )
        facts[name] = stated(name, _typed(name, value, place), unit=FACTS[name].unit)
    return facts


def _typed(name: str, value: object, place: str) -> Value:
    known = FACTS[name]
    if known.type is str and isinstance(value, str) and value.strip():
        return value.strip()
    if known.type is int and not isinstance(value, bool):
        if isinstance(value, str):
            with contextlib.suppress(ValueError):
                value = units.parse_count(value)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, int) and 0 < value <= LARGEST:
            return value
    kind = "a whole number above 0" if known.type is int else "text"
    if place == "option":
        option, example = f"--{name.replace('_', '-')}", known.example.partition(" = ")[2]
        raise RunError(f"{option} {value} is not {kind}", fix=f"{option} {example}")
    raise RunError(f"{place} states {name} = {value!r}, which is not {kind}", fix=f"write {known.example}")

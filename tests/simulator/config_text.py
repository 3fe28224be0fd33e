"""config.py, config.toml and facts.toml as text."""

import json
from collections.abc import Mapping

from tests.simulator.run import Handover
from tests.simulator.truth import Value


def config_text(handover: Handover) -> str:
    """The config file with its comments, in the language that its name says."""
    toml = handover.config.endswith(".toml")
    lines = [f"# {line}" for line in handover.preamble]
    for name, value in handover.settings.items():
        comment = handover.comments.get(name, "")
        line = f"{name} = {_toml(value) if toml else _python(value)}"
        lines.append(f"{line:<36}# {comment}" if comment else line)
    return "\n".join(lines) + "\n"


def facts_text(facts: Mapping[str, Value]) -> str:
    """facts.toml."""
    return "".join(f"{name} = {_toml(value)}\n" for name, value in facts.items())


def _python(value: Value) -> str:
    return repr(value)


def _toml(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    return repr(value)

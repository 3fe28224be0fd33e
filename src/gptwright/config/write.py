"""A config as TOML text that `load_config` reads back to the same settings."""

import json

from gptwright.config.schema import FIELDS, TrainConfig


def to_toml(config: TrainConfig) -> str:
    """All settings, one `name = value` a line, in the schema's order.

    Settings that are None are left out, which TOML has no value for: reading gives them their default, None.
    """
    lines = []
    for name, field in FIELDS.items():
        value = getattr(config, name)
        if value is not None:
            lines.append(f"{name} = {_toml(value)}  # {field.description}")
    return "\n".join(lines) + "\n"


def _toml(value: float | str | bool) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # JSON's escapes are a subset of TOML's, but for DEL, which TOML wants escaped.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value)

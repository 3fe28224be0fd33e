"""A JSON object on a line whose losses lie in objects of its own: `{"step": 100, "val": {"loss": 4.61}}`.

There the name that tells a loss of validation from one of training is not in front of it but around it.
"""

import json
from collections.abc import Iterator
from typing import Any


def flat(text: str) -> str:
    """A line with `val/loss: 4.61` for such an object; empty where one is cut or damaged; else as it is."""
    begin = text.find("{")
    if begin < 0 or not text.startswith('{"', begin) or text.find("{", begin + 1) < 0:
        return text
    try:
        document = json.loads(text[begin:])
    except (ValueError, RecursionError):
        return ""
    return text[:begin] + ", ".join(f"{path}: {value}" for path, value in _leaves(document, ""))


def _leaves(document: dict[str, Any], path: str) -> Iterator[tuple[str, object]]:
    for name, value in document.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{path}{name}/")
        elif not isinstance(value, list):
            yield f"{path}{name}", value

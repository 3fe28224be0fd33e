"""A JSON object or a dict on a line, with losses in objects of its own: `{"step": 9, "val": {"loss": 4.61}}`.

There the name that tells a loss of validation from one of training is not in front of it but around it.
"""

import ast
import json
from collections.abc import Iterator
from typing import Any

# In front of the first name: JSON's, and that of a printed dict.
QUOTES = ('"', "'")


def flat(text: str) -> str:
    """A line with `val/loss: 4.61` for such an object; empty where one is cut or damaged; else as it is."""
    begin = text.find("{")
    if begin < 0 or text[begin + 1 : begin + 2] not in QUOTES or text.find("{", begin + 1) < 0:
        return text
    parse = json.loads if text[begin + 1] == '"' else ast.literal_eval
    try:
        document = parse(text[begin:])
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return ""
    if not isinstance(document, dict):
        return ""
    return text[:begin] + ", ".join(f"{path}: {value}" for path, value in _leaves(document, ""))


def _leaves(document: dict[Any, Any], path: str) -> Iterator[tuple[str, object]]:
    for name, value in document.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{path}{name}/")
        elif not isinstance(value, list):
            yield f"{path}{name}", value

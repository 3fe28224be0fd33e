"""Somebody's config file as evidence: what it sets, where, and what its comments claim.

Unlike the config room, which refuses what `train` cannot take, this reads what it can of any file: settings
of other programs too, in a dataclass, a dict or capitals as well, and it counts the statements that it does
not understand. Nothing is executed: values are literals, arithmetic on numbers, and names of settings above.
"""

import ast
import io
import re
import tokenize
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from gptwright.config.foreign import SAME_AS
from gptwright.config.nanogpt import LARGEST_EXPONENT, LARGEST_NUMBER, OPERATIONS
from gptwright.config.schema import FIELDS
from gptwright.errors import ConfigError
from gptwright.facts import Value, configured
from gptwright.record.evidence import LONGEST_COMMENT, Comment, ConfigEvidence

LONGEST_FILE = 1 << 20
HOLDS_SETTINGS = re.compile(r"config|cfg|param|setting|arg|^dict$", re.IGNORECASE)
TOML_KEY = re.compile(r"\s*([\w-]+|\"[^\"\n]*\"|'[^'\n]*')\s*=")


def read_config_evidence(path: Path) -> ConfigEvidence:
    """What a config file says, TOML or nanoGPT-style Python.

    Raises:
        ConfigError: the file cannot be read, or is neither of the two.
    """
    if path.suffix not in (".py", ".toml"):
        raise ConfigError(
            f"{path} is neither a .toml nor a .py file",
            why="a run's config is TOML, or a nanoGPT-style Python file of assignments",
            fix="rename it, or leave it out",
        )
    text = _text(path)
    if path.suffix == ".toml":
        settings, skipped = _toml_settings(path, text)
        comments = list(_toml_comments(text))
    else:
        settings, skipped = _python_settings(path, text)
        comments = list(_python_comments(text))
    fields = {place: name for name, (_, place) in settings.items()}
    facts = {
        name: configured(name, value, place=f"{path.name}:{line}") for name, (value, line) in settings.items()
    }
    for name, same in SAME_AS.items():
        if name in facts and same not in facts:
            # Its source stays the field that was written.
            facts[same] = replace(facts[name], name=same)
    return ConfigEvidence(
        path=path,
        settings=facts,
        comments=tuple(
            Comment(comment[:LONGEST_COMMENT], line, fields.get(line)) for comment, line in comments
        ),
        skipped=skipped,
    )


def literal(text: str) -> Value:
    """The value of one expression of literals.

    Raises:
        ValueError: it is anything else.
    """
    try:
        return _value(ast.parse(text.strip(), mode="eval").body, {})
    except (SyntaxError, RecursionError, MemoryError, ArithmeticError, TypeError) as error:
        raise ValueError(str(error)) from None


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > LONGEST_FILE:
            raise ConfigError(f"{path} is larger than 1 MiB, which no config is")
        return path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}") from None


Settings = dict[str, tuple[Value, int]]


def _python_settings(path: Path, text: str) -> tuple[Settings, int]:
    try:
        tree = ast.parse(text, filename=str(path))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None) or 1
        raise ConfigError(f"{path}:{line} is not valid Python: {getattr(error, 'msg', error)}") from None
    settings: Settings = {}
    skipped = 0
    for statement in tree.body:
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            continue
        known = {name: value for name, (value, _) in settings.items()}
        inside = [
            (name, value, node.lineno)
            for name, node in _inside(statement)
            if (value := _value_or_none(node, known)) is not None
        ]
        for name, value, line in inside:
            settings.setdefault(name, (value, line))
        if inside:
            continue
        try:
            name, value = _assigned(statement, known)
            settings[name] = value, statement.lineno
        except (ValueError, ArithmeticError, TypeError, RecursionError):
            skipped += 1
    return _lowered(settings), skipped


def _inside(statement: ast.stmt) -> Iterator[tuple[str, ast.expr]]:
    """The settings in a dataclass or a dict: `class GPTConfig: n_layer: int = 12`, `dict(n_layer=12)`.

    Classes and calls of other names may be anything.
    """
    if isinstance(statement, ast.ClassDef) and HOLDS_SETTINGS.search(statement.name):
        for part in statement.body:
            if (
                isinstance(part, ast.AnnAssign)
                and isinstance(part.target, ast.Name)
                and part.value is not None
            ):
                yield part.target.id, part.value
            elif isinstance(part, ast.Assign) and isinstance(part.targets[0], ast.Name):
                yield part.targets[0].id, part.value
    elif isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
        yield from _items(statement.value)


def _items(node: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """Names and values of a dict, those of dicts inside it included."""
    pairs: list[tuple[str | None, ast.expr]] = []
    if isinstance(node, ast.Dict):
        names = (key.value if isinstance(key, ast.Constant) else None for key in node.keys)
        pairs = [
            (str(name) if name is not None else None, each)
            for name, each in zip(names, node.values, strict=True)
        ]
    elif (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and HOLDS_SETTINGS.search(node.func.id)
    ):
        pairs = [(keyword.arg, keyword.value) for keyword in node.keywords]
    for name, value in pairs:
        within = list(_items(value))
        if within:
            yield from within
        elif name is not None:
            yield name, value


def _lowered(settings: Settings) -> Settings:
    """The settings, those in capitals by nanoGPT's names too where no other has them: `BATCH_SIZE`."""
    lowered = {name.lower(): value for name, value in settings.items() if name.isupper()}
    return {name: value for name, value in lowered.items() if name in FIELDS or name in SAME_AS} | settings


def _value_or_none(node: ast.expr, known: Mapping[str, Value]) -> Value:
    try:
        return _value(node, known)
    except (ValueError, ArithmeticError, TypeError, RecursionError):
        return None


def _assigned(statement: ast.stmt, known: Mapping[str, Value]) -> tuple[str, Value]:
    if isinstance(statement, ast.AnnAssign) and statement.value is not None:
        target: ast.expr = statement.target
    elif isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target = statement.targets[0]
    else:
        raise ValueError("no assignment")
    if isinstance(target, ast.Name) and statement.value is not None:
        return target.id, _value(statement.value, known)
    raise ValueError("no name")


def _value(node: ast.expr, known: Mapping[str, Value]) -> Value:
    match node:
        case ast.Constant(value=bool() | int() | float() | str() | None as value):
            return value
        case ast.Name() if node.id in known:
            return known[node.id]
        case ast.UnaryOp(op=ast.USub()):
            return -_number(node.operand, known)
        case ast.BinOp() if type(node.op) in OPERATIONS:
            left, right = _number(node.left, known), _number(node.right, known)
            if isinstance(node.op, ast.Pow) and abs(right) > LARGEST_EXPONENT:
                raise ValueError("too large")
            result = OPERATIONS[type(node.op)](left, right)
            if isinstance(result, int | float):
                return result
    raise ValueError("no literal")


def _number(node: ast.expr, known: Mapping[str, Value]) -> int | float:
    value = _value(node, known)
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > LARGEST_NUMBER:
        raise ValueError("no number")
    return value


def _python_comments(text: str) -> Iterator[tuple[str, int]]:
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                yield token.string.lstrip("#").strip(), token.start[0]
    except (tokenize.TokenError, SyntaxError):
        return


def _toml_settings(path: Path, text: str) -> tuple[Settings, int]:
    try:
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from None
    lines: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        key = TOML_KEY.match(line)
        if key:
            lines.setdefault(key[1].strip("\"'"), number)
    settings: Settings = {}
    skipped = 0
    for name, value in _leaves(document):
        if isinstance(value, bool | int | float | str) and name not in settings:
            settings[name] = value, lines.get(name, 1)
        else:
            skipped += 1
    return settings, skipped


def _leaves(table: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Keys and values; those of sections by their own name, as in `[training] steps = 100`."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _leaves(value)
        else:
            yield name, value


def _toml_comments(text: str) -> Iterator[tuple[str, int]]:
    """Comments of a TOML file: from a `#` that stands in no string to the end of its line."""
    quote = ""
    for number, line in enumerate(text.splitlines(), 1):
        at = 0
        while at < len(line):
            if quote:
                if quote not in ("'", "'''") and line[at] == "\\":
                    at += 1
                elif line.startswith(quote, at):
                    at += len(quote) - 1
                    quote = ""
            elif line[at] == "#":
                yield line[at:].lstrip("#").strip(), number
                break
            elif line[at] in "\"'":
                quote = line[at] * 3 if line.startswith(line[at] * 3, at) else line[at]
                at += len(quote) - 1
            at += 1
        if len(quote) == 1:
            quote = ""

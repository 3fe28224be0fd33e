"""Reads nanoGPT-style Python configs as data.

nanoGPT runs its config files with `exec`. Here the file is parsed, and only assignments of literals to
names are taken: numbers, strings, booleans, None, and arithmetic on number literals such as `5 * 8`.
Anything else is refused with its line, and nothing is ever executed.
"""

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from gptwright.errors import ConfigError

Literal = int | float | str | bool | None
Number = int | float

# A power of two literals can fill the memory (9**9**9), so operands and results are bounded well above
# anything that a setting may be.
LARGEST_NUMBER = 1e30
LARGEST_EXPONENT = 100

OPERATIONS: Mapping[type[ast.operator], Callable[[Number, Number], Number]] = MappingProxyType(
    {
        ast.Add: operator.add,
        ast.Sub: operator.sub,
        ast.Mult: operator.mul,
        ast.Div: operator.truediv,
        ast.FloorDiv: operator.floordiv,
        ast.Mod: operator.mod,
        ast.Pow: operator.pow,
    }
)

# nanoGPT's settings that need nothing here, with what is true instead. They are accepted wherever a nanoGPT
# user would write them, and the start-up table says that they have no effect.
WITHOUT_EFFECT: Mapping[str, str] = MappingProxyType(
    {
        "always_save_checkpoint": "the newest and the best checkpoint are both kept, whatever it says",
        "wandb_log": "metrics go to metrics.jsonl in the run folder",
        "wandb_project": "metrics go to metrics.jsonl in the run folder",
        "wandb_run_name": "metrics go to metrics.jsonl in the run folder",
        "backend": "chosen by the device: NCCL between CUDA devices, else gloo",
    }
)


@dataclass(frozen=True, slots=True)
class Assignment:
    """One `name = value` of a config file, with its line (counted from 1)."""

    name: str
    value: Literal
    line: int


def read_python_config(path: Path) -> list[Assignment]:
    """The assignments of a nanoGPT-style config, in their order.

    Raises:
        ConfigError: the file cannot be read or parsed, or holds anything but assignments of literals.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
        tree = ast.parse(text, filename=str(path))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path} is not UTF-8 text: byte {error.start} is {error.object[error.start]:#04x}"
        ) from None
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None) or 1
        raise ConfigError(f"{path}:{line} is not valid Python: {getattr(error, 'msg', error)}") from None
    assignments = []
    problems = []
    for statement in tree.body:
        if _is_docstring(statement):
            continue
        try:
            assignments.append(_assignment(statement))
        except (_Refused, RecursionError) as refusal:
            source = (text.splitlines() or [""])[statement.lineno - 1].strip()
            problems.append(
                ConfigError(
                    f"{path}:{statement.lineno} is not an assignment of a literal: {source}",
                    why=f"{refusal or 'nested too deeply'};"
                    " config files are read as data, nothing in them is executed",
                    fix="write the value itself, as in `batch_size = 12` or `max_iters = 5 * 8`",
                )
            )
    if problems:
        raise ConfigError.of(problems)
    return assignments


class _Refused(Exception):  # noqa: N818 - it never leaves this module
    """A statement or expression that is not plain data."""


def _is_docstring(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def _assignment(statement: ast.stmt) -> Assignment:
    if isinstance(statement, ast.AnnAssign) and statement.value is not None:
        targets: list[ast.expr] = [statement.target]
        value = statement.value
    elif isinstance(statement, ast.Assign):
        targets, value = statement.targets, statement.value
    else:
        raise _Refused(f"{_described(statement)} is code")
    if len(targets) != 1 or not isinstance(targets[0], ast.Name):
        raise _Refused("only a single name can be set")
    return Assignment(targets[0].id, _evaluated(value), statement.lineno)


def _described(node: ast.AST) -> str:
    name = type(node).__name__
    return {"Import": "an import", "ImportFrom": "an import", "Call": "a call", "Name": "a name"}.get(
        name, f"`{name}`"
    )


def _evaluated(node: ast.expr) -> Literal:
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float | str | None):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        number = _number(node.operand)
        return -number if isinstance(node.op, ast.USub) else number
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATIONS:
        return _calculated(OPERATIONS[type(node.op)], _number(node.left), _number(node.right))
    raise _Refused(f"{_described(node)} is code")


def _number(node: ast.expr) -> Number:
    value = _evaluated(node)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _Refused("arithmetic takes numbers only")
    if abs(value) > LARGEST_NUMBER:
        raise _Refused("the number is too large to be a setting")
    return value


def _calculated(operation: Callable[[Number, Number], Number], left: Number, right: Number) -> Number:
    if operation is operator.pow and abs(right) > LARGEST_EXPONENT:
        raise _Refused("the exponent is too large to be a setting")
    try:
        result = operation(left, right)
    except (ArithmeticError, ValueError) as error:
        raise _Refused(str(error)) from None
    if isinstance(result, complex):
        raise _Refused("the result is a complex number")
    return result

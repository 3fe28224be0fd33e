"""Reads nanoGPT-style Python configs as data.

nanoGPT runs its config files with `exec`. Here the file is parsed, and only assignments of plain values to
names are taken: numbers, strings, booleans, None, arithmetic on numbers such as `5 * 8`, strings joined with
`+` or in an f-string, `str(…)` of a value, and settings from above by their names. `import` of a module of
Python's own is passed over and said to have no effect, and so is whatever is assigned to a setting that has
none here. A W&B run's name that is made by code (nanoGPT takes `time.time()`) is left to its default, and so
are device, dtype and compile where the machine decides (`"cuda" if … else "cpu"`).
Anything else is refused with its line, and nothing is ever executed.
"""

import ast
import operator
import sys
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
# Names used again and again could double a text with every line; no path is longer.
LONGEST_TEXT = 4096
# Names that decide nothing, so that a default serves as well.
LEFT_TO_DEFAULT = frozenset({"wandb_run_name"})
# Settings that find out by themselves what a config asks torch for ("cuda" if there is one, else "cpu").
AUTOMATIC = frozenset({"device", "dtype", "compile"})

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
        "backend": "chosen by the device: NCCL between CUDA devices, else gloo",
    }
)


IMPORT = "import "


def why_without_effect(name: str) -> str | None:
    """Why a setting, or a line `import NAME` of a config file, changes nothing here; None if it does."""
    if name.startswith(IMPORT):
        return "config files are read as data; nothing in them is executed"
    return WITHOUT_EFFECT.get(name)


@dataclass(frozen=True, slots=True)
class Assignment:
    """One `name = value` of a config file, with its line (counted from 1).

    A line `import NAME` is one too: its name is the line, its value None.
    """

    name: str
    value: Literal
    line: int


def read_python_config(path: Path) -> list[Assignment]:
    """The assignments of a nanoGPT-style config, in their order.

    Raises:
        ConfigError: the file cannot be read or parsed, or holds anything but assignments of plain values.
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
    assignments: list[Assignment] = []
    problems = []
    known: dict[str, Literal] = {}
    for statement in tree.body:
        if _is_docstring(statement):
            continue
        try:
            found = _imports(statement) or [_assignment(statement, known)]
            assignments += found
            known |= {item.name: item.value for item in found if item.name not in WITHOUT_EFFECT}
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


def _imports(statement: ast.stmt) -> list[Assignment]:
    """What a line imports, if that is all of Python's own library."""
    if not isinstance(statement, ast.Import):
        return []
    names = [alias.name for alias in statement.names]
    if not all(name.partition(".")[0] in sys.stdlib_module_names for name in names):
        return []
    return [Assignment(f"{IMPORT}{name}", None, statement.lineno) for name in names]


def _assignment(statement: ast.stmt, known: Mapping[str, Literal]) -> Assignment:
    if isinstance(statement, ast.AnnAssign) and statement.value is not None:
        targets: list[ast.expr] = [statement.target]
        value = statement.value
    elif isinstance(statement, ast.Assign):
        targets, value = statement.targets, statement.value
    else:
        raise _Refused(f"{_described(statement)} is code")
    if len(targets) != 1 or not isinstance(targets[0], ast.Name):
        raise _Refused("only a single name can be set")
    name = targets[0].id
    try:
        return Assignment(name, _evaluated(value, known), statement.lineno)
    except _Refused:
        if name in AUTOMATIC and isinstance(value, ast.IfExp):
            return Assignment(name, "auto", statement.lineno)
        if name not in WITHOUT_EFFECT and name not in LEFT_TO_DEFAULT:
            raise
    return Assignment(name, None, statement.lineno)


def _described(node: ast.AST) -> str:
    name = type(node).__name__
    return {"Import": "an import", "ImportFrom": "an import", "Call": "a call", "Name": "a name"}.get(
        name, f"`{name}`"
    )


def _evaluated(node: ast.expr, known: Mapping[str, Literal]) -> Literal:
    match node:
        case ast.Constant(value=bool() | int() | float() | str() | None as value):
            return value
        case ast.Name(id=name) if name in known:
            return known[name]
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign):
            number = _number(_evaluated(node.operand, known))
            return -number if isinstance(sign, ast.USub) else number
        case ast.BinOp():
            left, right = _evaluated(node.left, known), _evaluated(node.right, known)
            if isinstance(left, str) and isinstance(right, str) and isinstance(node.op, ast.Add):
                return _bounded(left + right)
            if type(node.op) in OPERATIONS:
                return _calculated(OPERATIONS[type(node.op)], _number(left), _number(right))
        case ast.JoinedStr(values=parts) | ast.Call(func=ast.Name(id="str"), args=[_] as parts, keywords=[]):
            return _bounded("".join(_part(part, known) for part in parts))
    raise _Refused(f"{_described(node)} is code")


def _part(node: ast.expr, known: Mapping[str, Literal]) -> str:
    """What is inside `str(…)`, or a piece of an f-string, which has no format of its own."""
    if isinstance(node, ast.FormattedValue):
        if node.conversion != -1 or node.format_spec is not None:
            raise _Refused("a format inside a string is code")
        node = node.value
    return str(_evaluated(node, known))


def _bounded(text: str) -> str:
    if len(text) > LONGEST_TEXT:
        raise _Refused("the text is too long to be a setting")
    return text


def _number(value: Literal) -> Number:
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

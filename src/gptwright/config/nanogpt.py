"""Reads nanoGPT-style Python configs as data.

nanoGPT runs its config files with `exec`. Here the file is parsed, and only assignments of plain values to
names are taken: numbers, strings, booleans, None, arithmetic on numbers such as `5 * 8` or `int(10e9 //
524288)`, strings joined with `+` or in an f-string, `str(…)` of a value, and settings from above by their
names. `import NAME` brings no setting, so it is passed over and said to have no effect, and so is whatever
is assigned to a setting that has none here. A W&B run's name that is made by code (nanoGPT takes
`time.time()`) is left to its default, and so are device, dtype and compile where the machine decides
(`"cuda" if … else "cpu"`, `device == "cuda"`).
Anything else is refused with its line, and nothing is ever executed.
"""

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from gptwright.config.foreign import why_not_needed
from gptwright.errors import ConfigError

# What a setting of such a file may be.
Plain = int | float | str | bool | None
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

# Expressions by which a config asks the machine; a plain name of torch's, as in torch.float16, is a choice.
ASKED = (ast.IfExp, ast.Compare, ast.BoolOp, ast.Call, ast.UnaryOp)

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
# Python's own functions of numbers that configs use to make a whole number of a quotient.
FUNCTIONS: Mapping[str, Callable[..., Number]] = MappingProxyType(
    {"int": int, "float": float, "round": round, "min": min, "max": max, "abs": abs}
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
# What a refused line holds, in words.
NOUNS: Mapping[type[ast.AST], str] = MappingProxyType(
    {
        ast.Call: "a call",
        ast.ImportFrom: "an import",
        ast.ClassDef: "a class",
        ast.FunctionDef: "a function",
        ast.If: "an if",
        ast.IfExp: "a condition",
        ast.For: "a loop",
        ast.With: "a with",
        ast.Dict: "a dict",
        ast.List: "a list",
        ast.Tuple: "a tuple",
        ast.Attribute: "an attribute",
        ast.AugAssign: "a change of a value",
    }
)


def why_without_effect(name: str) -> str | None:
    """Why a setting, or a line `import NAME` of a config file, changes nothing here; None if it does."""
    if name.startswith(IMPORT):
        return "config files are read as data; nothing in them is executed"
    return WITHOUT_EFFECT.get(name) or why_not_needed(name)


@dataclass(frozen=True, slots=True)
class Assignment:
    """One `name = value` of a config file, with its line (counted from 1).

    A line `import NAME` is one too: its name is the line, its value None. `used` is whether other lines
    calculate with it, as with `n_gpu` of `gradient_accumulation_steps = 5 * n_gpu`.
    """

    name: str
    value: Plain
    line: int
    used: bool = False


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
    known: dict[str, Plain] = {}
    for statement in tree.body:
        if _is_docstring(statement):
            continue
        try:
            found = _imports(statement) or _assignments(statement, known)
            assignments += found
            known |= {item.name: item.value for item in found if not why_without_effect(item.name)}
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
    used = {
        node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }
    return [replace(item, used=item.name in used) for item in assignments]


class _Refused(Exception):  # noqa: N818 - it never leaves this module
    """A statement or expression that is not plain data."""


def _is_docstring(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def _imports(statement: ast.stmt) -> list[Assignment]:
    """What a line `import NAME` names; nothing for any other, and `from … import` may bring settings."""
    if not isinstance(statement, ast.Import):
        return []
    return [Assignment(f"{IMPORT}{alias.name}", None, statement.lineno) for alias in statement.names]


def _assignments(statement: ast.stmt, known: Mapping[str, Plain]) -> list[Assignment]:
    """Each name that a line sets: `a = 1`, `a: int = 1`, `a = b = 1` and `a, b = 1, 2`."""
    if isinstance(statement, ast.AnnAssign) and statement.value is not None:
        targets: list[ast.expr] = [statement.target]
        value = statement.value
    elif isinstance(statement, ast.Assign):
        targets, value = statement.targets, statement.value
    else:
        raise _Refused(f"{_described(statement)} is code")
    return [
        Assignment(name, _value_for(name, node, known), statement.lineno)
        for target in targets
        for name, node in _pairs(target, value)
    ]


def _pairs(target: ast.expr, value: ast.expr) -> list[tuple[str, ast.expr]]:
    """Names with the expressions that are assigned to them."""
    match target, value:
        case ast.Name(id=name), _:
            return [(name, value)]
        case ast.Tuple(elts=targets), ast.Tuple(elts=values) if len(targets) == len(values):
            return [pair for one, each in zip(targets, values, strict=True) for pair in _pairs(one, each)]
    raise _Refused("only names can be set")


def _value_for(name: str, node: ast.expr, known: Mapping[str, Plain]) -> Plain:
    try:
        return _evaluated(node, known)
    except _Refused:
        if name in AUTOMATIC and isinstance(node, ASKED):
            return "auto"
        if not why_without_effect(name) and name not in LEFT_TO_DEFAULT:
            raise
    return None


def _described(node: ast.AST) -> str:
    match node:
        case ast.Name(id=name):
            return f"`{name}` has no value that could be read above, and a name"
        case ast.Expr(value=value):
            return _described(value)
    return NOUNS.get(type(node), f"`{type(node).__name__}`")


def _evaluated(node: ast.expr, known: Mapping[str, Plain]) -> Plain:
    match node:
        case ast.Constant(value=bool() | int() | float() | str() | None as value):
            return value
        case ast.Name(id=name) if name in known:
            return known[name]
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign):
            number = _number(_evaluated(node.operand, known))
            return -number if isinstance(sign, ast.USub) else number
        case ast.BinOp():
            return _combined(node, known)
        case ast.JoinedStr(values=parts):
            return _bounded("".join(_part(part, known) for part in parts))
        case ast.Call(func=ast.Name(id=function), args=[_, *_] as values, keywords=[]):
            return _called(function, node, values, known)
    raise _Refused(f"{_described(node)} is code")


def _combined(node: ast.BinOp, known: Mapping[str, Plain]) -> Plain:
    """What two plain values come to: texts joined, or arithmetic on numbers."""
    left, right = _evaluated(node.left, known), _evaluated(node.right, known)
    if isinstance(left, str) and isinstance(right, str) and isinstance(node.op, ast.Add):
        return _bounded(left + right)
    if type(node.op) in OPERATIONS:
        return _calculated(OPERATIONS[type(node.op)], _number(left), _number(right))
    raise _Refused(f"{_described(node)} is code")


def _called(function: str, node: ast.expr, values: Sequence[ast.expr], known: Mapping[str, Plain]) -> Plain:
    """What a function of plain values gives."""
    if function == "str" and len(values) == 1:
        return _bounded(_part(values[0], known))
    if function in FUNCTIONS:
        return _calculated(FUNCTIONS[function], *(_number(_evaluated(each, known)) for each in values))
    raise _Refused(f"{_described(node)} is code")


def _part(node: ast.expr, known: Mapping[str, Plain]) -> str:
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


def _number(value: Plain) -> Number:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _Refused("arithmetic takes numbers only")
    if abs(value) > LARGEST_NUMBER:
        raise _Refused("the number is too large to be a setting")
    return value


def _calculated(operation: Callable[..., Number], *numbers: Number) -> Number:
    if operation is operator.pow and abs(numbers[1]) > LARGEST_EXPONENT:
        raise _Refused("the exponent is too large to be a setting")
    try:
        result = operation(*numbers)
    except (ArithmeticError, TypeError, ValueError) as error:
        raise _Refused(str(error)) from None
    if isinstance(result, complex):
        raise _Refused("the result is a complex number")
    return result

"""Whether every number of an evidence stands in the line that it cites, digit for digit.

The lines are found here a second time, by nothing but line feeds, and their numbers by nothing but digits. A
value must be one of those numbers as a whole, or what the evidence's documentation says is made of them:
milliseconds to seconds, percent to fractions, units, a clock's differences, micro-batches to steps. A line
that a terminal broke goes on in the next ones, so the numbers of those count too, put together without and
with a space.
"""

import codecs
import math
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache

from gptwright.facts import Fact, Origin
from gptwright.record.evidence import LogEvidence

NUMBER = re.compile(r"(?=((?<![\d.])(?:\d[\d,]*)?(?:\.\d+)?(?<=\d)(?:[eE][-+]?\d+)?))", re.ASCII)
PIECES = 12
UNITS = (1.0, 1e3, 1e6, 1e9, 1e12, 2.0**20, 2.0**30, 60.0, 1e-2, 1e-3)
TERMINAL = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)|[@-Z\\-_])?|\[\d{1,3}(?:;\d{1,3}){0,5}m"
)
ODD = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\x85\u2028\u2029\ufeff]")


class Literal:
    """The numbers of a log, line by line.

    Args:
        data: the log.
        joined: its reader put broken lines together.
    """

    def __init__(self, data: bytes, *, joined: bool) -> None:
        utf16 = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or data[1:400:2].count(0) > 80
        encoding = "utf-16" if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-16-le"
        text = data.decode(encoding if utf16 else "utf-8", errors="replace")
        text = text.replace("\xa0", " ")
        self.lines = [ODD.sub("", TERMINAL.sub("", line)) for line in text.replace("\r\n", "\n").split("\n")]
        self._joined = joined
        self._numbers: dict[int, frozenset[float]] = {}

    def numbers(self, line: int) -> frozenset[float]:
        """Every number that begins in this line or, put together, in those after it."""
        if line not in self._numbers:
            self._numbers[line] = frozenset(number for text in self._texts(line) for number in _numbers(text))
        return self._numbers[line]

    def _texts(self, line: int) -> Iterator[str]:
        """What stands in a line, and what it may be together with the pieces after it."""
        if '"' in self.lines[line - 1]:
            # A dict of a state file lies around the line of its loss.
            around = self.lines[max(0, line - 30) : line + 30]
            yield from around
            yield "".join(around)
        own = self.lines[line - 1].split("\r")
        if not self._joined:
            yield from own
            return
        pieces = [*own, *(piece for text in self.lines[line : line + PIECES] for piece in text.split("\r"))]
        for first in range(len(own)):
            for last in range(first + 1, min(len(pieces), first + PIECES) + 1):
                yield "".join(pieces[first:last])
                yield " ".join(piece.strip() for piece in pieces[first:last])

    def says_none(self, line: int) -> bool:
        """Whether a line says NaN or infinity."""
        pieces = [text.replace("\r", "") for text in self.lines[line - 1 : line - 1 + PIECES]]
        return any(re.search(r"nan|inf", text, re.IGNORECASE) for text in (pieces[0], "".join(pieces)))

    def says(self, line: int, value: float, factors: Iterable[float] = (1.0,)) -> bool:
        """Whether a line says a value, or one that a factor makes it."""
        found = self.numbers(line)
        return any(_near(value, number * factor) for factor in factors for number in found)


def invented(evidence: LogEvidence, data: bytes) -> list[str]:
    """What an evidence says and its log does not."""
    # Only the Trainer's dicts may lie over several lines without having been broken.
    several = evidence.format.name == "Hugging Face Trainer"
    log = Literal(data, joined=several or "joined wrapped lines" in evidence.hazards)
    return [*_train(evidence, log), *_evals(evidence, log), *_facts(evidence, log)]


def _train(evidence: LogEvidence, log: Literal) -> list[str]:
    table, wrong = evidence.train, []
    for at in range(len(table)):
        line, step = int(table.line[at]), int(table.step[at])
        if not (
            log.says(line, step)
            or _is_bar(evidence, log, line, step)
            or _is_counted(evidence, log, line, step)
            or _of_block(evidence, log, line, step)
        ):
            wrong.append(f"line {line}: step {step}")
        for name in ("loss", "mfu", "learning_rate", "grad_norm", "tokens_per_second"):
            value = float(getattr(table, name)[at])
            said = log.says(line, abs(value), _factors(evidence, name)) or (
                name == "loss" and _is_power(evidence, log, line, value)
            )
            if math.isfinite(value) and not said:
                wrong.append(f"line {line}: {name} {value}")
        if math.isfinite(table.seconds[at]) and not _is_time(evidence, log, at):
            wrong.append(f"line {line}: seconds {table.seconds[at]}")
        if table.loss_is_bad[at] and not log.says_none(line):
            wrong.append(f"line {line}: bad loss")
    return wrong


def _is_counted(evidence: LogEvidence, log: Literal, line: int, step: int) -> bool:
    """Whether a plain print's step is a number of its line beyond whole epochs of another, or is none."""
    if evidence.format.name != "plain prints":
        return False
    if any("numbered" in name or "epochs" in name for name in evidence.hazards):
        return True
    numbers = log.numbers(line)
    return any(of and (step - number) % of == 0 for number in numbers for of in numbers)


def _of_block(evidence: LogEvidence, log: Literal, line: int, step: int) -> bool:
    """Whether one of the lines above a plain print has its step."""
    plain = evidence.format.name == "plain prints"
    return plain and any(log.says(above, step) for above in range(max(1, line - PIECES), line))


def _has_clock(log: Literal, line: int) -> bool:
    return re.search(r"\d:\d\d:\d\d|elapsed|\ds\)|\| \d+\.\d\d\]", log.lines[line - 1]) is not None


def _is_bar(evidence: LogEvidence, log: Literal, line: int, step: int) -> bool:
    """Whether a progress bar somewhere before a dict, or the first after it, shows its step."""
    if evidence.format.name != "Hugging Face Trainer":
        return False
    if any("numbered" in name for name in evidence.hazards):
        return True
    shown = re.compile(rf"(?<!\d)0*{step}/\d")
    return any(shown.search(text) for text in log.lines[: line + PIECES])


def _is_time(evidence: LogEvidence, log: Literal, at: int) -> bool:
    table = evidence.train
    line, seconds = int(table.line[at]), float(table.seconds[at])
    match evidence.format.name:
        case "MLX":
            return log.says(line, 1 / seconds)
        case "litgpt":
            accumulation = evidence.header.get("gradient_accumulation_steps")
            return log.says(line, seconds, (1e-3 * (accumulation.number if accumulation else 1.0),))
        case "plain prints":
            return (
                log.says(line, seconds, (1.0, 1e-3)) or log.says(line, 1 / seconds) or _has_clock(log, line)
            )
        case "gptwright":
            return log.says(line, seconds, (1.0, 1e-3))
        case "modded-nanogpt":
            return at > 0 and _is_clock(evidence, log, at)
    return log.says(line, seconds, (1e-3,))


def _is_clock(evidence: LogEvidence, log: Literal, at: int) -> bool:
    """Whether a time is the difference of two readings, each in milliseconds or seconds, over their steps."""
    table = evidence.train
    line, seconds = int(table.line[at]), float(table.seconds[at])
    before = int(table.line[at - 1])
    steps = float(table.step[at] - table.step[at - 1])
    clocks = (
        b * unit - a * unit_before
        for a in log.numbers(before)
        for b in log.numbers(line)
        for unit in (1.0, 1e-3)
        for unit_before in (1.0, 1e-3)
    )
    return any(math.isclose(seconds, clock / steps, rel_tol=1e-9, abs_tol=1e-12) for clock in clocks)


def _evals(evidence: LogEvidence, log: Literal) -> list[str]:
    table, wrong = evidence.evals, []
    steps = {int(step) + offset for step in evidence.train.step for offset in (-1, 0, 1)}
    each = evidence.header.get("gradient_accumulation_steps")
    for at in range(len(table)):
        line, step = int(table.line[at]), int(table.step[at])
        counted = each is not None and any(n // each.number == step for n in log.numbers(line))
        if not (
            log.says(line, step)
            or step in steps
            or (at > 0 and step == table.step[at - 1])
            or counted
            or _is_bar(evidence, log, line, step)
            or _is_counted(evidence, log, line, step)
            or _of_block(evidence, log, line, step)
        ):
            wrong.append(f"line {line}: step {step} of an evaluation")
        for name in ("train_loss", "val_loss", "val_bpb", "train_standard_error", "val_standard_error"):
            value = float(getattr(table, name)[at])
            if math.isfinite(value) and not (
                log.says(line, abs(value)) or _is_power(evidence, log, line, value)
            ):
                wrong.append(f"line {line}: {name} {value}")
    return wrong


def _is_power(evidence: LogEvidence, log: Literal, line: int, loss: float) -> bool:
    """Whether a plain print has the perplexity of a loss."""
    plain = evidence.format.name == "plain prints"
    return plain and any(_near(loss, math.log(number)) for number in log.numbers(line) if number > 1)


def _facts(evidence: LogEvidence, log: Literal) -> list[str]:
    wrong = []
    for fact in (*evidence.header.values(), *evidence.settings.values()):
        if fact.origin is Origin.DERIVED or isinstance(fact.value, bool | str) or fact.value is None:
            continue
        line = int(fact.source.removeprefix("log:"))
        # Epochs that are counted from 0 are one more than the last.
        if fact.name == "epochs" and log.says(line, float(fact.value) - 1):
            continue
        # A plain print's epochs may stand lines above the length of one.
        if fact.name == "planned_steps" and evidence.format.name == "plain prints":
            continue
        if not _is_said(fact, log, line):
            wrong.append(f"line {line}: {fact.name} {fact.value}")
    return wrong


def _is_said(fact: Fact, log: Literal, line: int) -> bool:
    if fact.name.endswith("_rounding"):
        # Half a unit of the last digit, so twice that is a power of ten.
        return math.log10(2 * fact.number) == round(math.log10(2 * fact.number))
    if any("*" in text and "=" in text for text in log.lines[line - 1 : line + 1]):
        return True
    rounded = (0.0, 0.5) if fact.unit in ("bytes", "parameters") else (0.0,)
    found = log.numbers(line)
    return any(
        _near(abs(fact.number), number * unit) or abs(abs(fact.number) - number * unit) <= slack
        for unit in UNITS
        for number in found
        for slack in rounded
    )


def _factors(evidence: LogEvidence, name: str) -> tuple[float, ...]:
    devices = evidence.header.get("world_size")
    if name == "mfu":
        return (1.0, 1e-2)
    if name == "loss" and evidence.format.name == "plain prints":
        return (1.0, math.log(2))
    if name == "tokens_per_second":
        return (1.0, devices.number if devices else 1.0)
    return (1.0,)


@lru_cache(maxsize=4096)
def _numbers(text: str) -> frozenset[float]:
    found = set()
    for match in NUMBER.finditer(text):
        whole = match[1]
        # `12,288, with` and `1,234`: a comma may part thousands or end a number.
        for form in (whole.replace(",", ""), whole.partition(",")[0]):
            try:
                found.add(float(form))
            except ValueError:
                continue
    return frozenset(found)


def _near(value: float, other: float) -> bool:
    return value == other or math.isclose(value, other, rel_tol=1e-12)

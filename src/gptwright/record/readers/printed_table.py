"""Losses printed as a table: a line of names, then lines of numbers.

That is how a notebook shows the history of Hugging Face's Trainer (`Step  Training Loss  Validation Loss`),
how loggers write CSV files, and how people put their results into a README. Columns are parted by commas,
tabs, bars, spaces, or the semicolons of a spreadsheet whose decimals have commas; where spaces part them,
every name has to be known, or the numbers could not be told apart.
"""

import math
import re
from dataclasses import dataclass
from pathlib import Path

from gptwright.record.readers.decimal_commas import LOSS_CELL
from gptwright.record.readers.fields import LOSS
from gptwright.record.readers.printed_fields import TRAINING, VALIDATION, Printed

STEPS = frozenset(
    (
        "step",
        "steps",
        "iter",
        "iters",
        "iteration",
        "iterations",
        "global_step",
        "update",
        "updates",
    )
)
EPOCHS = frozenset(("epoch", "epochs", "ep"))
TRAIN = frozenset(
    (
        "train",
        "train loss",
        "training loss",
        "loss",
        "trainloss",
        "training",
        "loss train",
        "train loss step",
        "train loss epoch",
    )
)
VAL = frozenset(
    (
        "val",
        "val loss",
        "valid loss",
        "validation loss",
        "validation",
        "eval loss",
        "test loss",
        "valloss",
        "valid",
        "loss val",
        "loss eval",
        "val loss epoch",
    )
)
RATES = frozenset(("lr", "learning rate"))
NORMS = frozenset(("grad norm", "gradient norm", "gnorm", "norm"))
TOKENS = frozenset(
    ("tokens", "tokens seen", "total tokens", "tokens processed", "consumed tokens", "num tokens")
)
SPEEDS = frozenset(("tok s", "tokens s", "tok sec", "tokens sec", "tokens per sec", "tokens per second"))
CLOCKS = frozenset(
    ("wall time", "walltime", "elapsed", "elapsed s", "elapsed sec", "elapsed seconds", "elapsed time")
)
FURTHER = {"rate": RATES, "norm": NORMS, "speed": SPEEDS, "clock": CLOCKS, "tokens": TOKENS}
# TensorBoard's export of one quantity, which only the name of the file may tell.
EXPORTED = ["wall time", "step", "value"]
# The same as JSON: `[[wall time, step, value], …]`.
TRIPLE = re.compile(rf"\[\s*(\d{{9,10}}(?:\.\d{{1,20}})?),\s*(\d{{1,12}}),\s*({LOSS})\s*\](?=\s*[,\]]|$)")
SEPARATORS = (",", "\t", "|", ";")
RULE = re.compile(r"[\s|:+=─━-]{3,}")
# What rich draws its boxes with.
BOXES = str.maketrans({**dict.fromkeys("│┃║", "|"), **dict.fromkeys("┏┓┗┛┡┩┳╇┻└┘├┤┼┴┬╞╡╪╭╮╰╯═", "-")})
NAME = re.compile(
    r"((?:train(?:ing)?|val(?:id(?:ation)?)?|eval|test)[ _/]loss|learning rate|[a-z_/]{2,30})(?=\s|$)",
    re.IGNORECASE,
)
NUMBER = re.compile(LOSS)
THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
MOST_COLUMNS = 60
DIGITS = re.compile(r"\d+")
# As many forms as lines are remembered by; where each line has one of its own, none is of use.
MOST_FORMS = 1_000
GAP, FEWEST_PARTED = re.compile(r"\s{2,}"), 2


@dataclass(frozen=True, slots=True)
class Row:
    """A line of a table; NaN where it has no such column.

    Attributes:
        said: its losses and where in the run they are.
        rate: the learning rate.
        norm: of the gradient.
        speed: tokens a second.
        clock: what a clock shows, in seconds.
        tokens: since the start of the run.
    """

    said: Printed
    rate: float = math.nan
    norm: float = math.nan
    speed: float = math.nan
    clock: float = math.nan
    tokens: float = math.nan


class Table:
    """Reads tables in a log, line by line.

    Args:
        file: the name of the log's file.

    Attributes:
        unnamed: whether nothing says what the values of the table are.
        left_out: columns of losses that are not read, because another run's stand before them.
    """

    def __init__(self, file: str = "") -> None:
        self._names: list[str] = []
        self._separator = ","
        self._no_names: set[str] = set()
        self._of_file = _quantity_in(file)
        self.unnamed = False
        self.left_out = 0

    def take(self, text: str) -> Row | None:
        """What a line of a table says; None where it is no row."""
        text = text.translate(BOXES) if not text.isascii() else text
        if not self._names:
            self._may_begin(text)
            return None
        if RULE.fullmatch(text):
            return None
        cells = self._cells(text)
        row = self._row(cells)
        if row is None:
            self._names = []
            self._may_begin(text)
        return row

    def exported(self, text: str) -> list[Row]:
        """The rows of a line of TensorBoard's JSON; none where it is no such line."""
        found = TRIPLE.findall(text) if text.lstrip().startswith("[") else []
        if found and not self._names:
            self._keep(EXPORTED)
        rows = (self._row([clock, step, value]) for clock, step, value in found)
        return [row for row in rows if row is not None]

    def _may_begin(self, text: str) -> None:
        """Takes a line of names, if it is one; a line that differs from one that is none by its numbers alone
        is none either, and most lines of a log are of such a form.
        """
        form = DIGITS.sub("0", text)
        if form in self._no_names:
            return
        self._begin(text)
        if not self._names and len(self._no_names) < MOST_FORMS:
            self._no_names.add(form)

    def _begin(self, text: str) -> None:
        for separator in SEPARATORS:
            if separator in text:
                self._separator = separator
                names = [_plain(cell) for cell in self._cells(text)]
                if separator == "\t":
                    # Several in a row align columns; one in front of the first is that of an index.
                    names = names[:1] + [name for name in names[1:] if name]
                break
        else:
            # fastai parts them by so many spaces that a name may hold one.
            self._separator = "  " if len(GAP.split(text.strip())) > FEWEST_PARTED else " "
            if self._separator == "  ":
                self._keep([_plain(cell) for cell in self._cells(text)])
                return
            names = [_plain(name) for name in NAME.findall(text)]
            if "".join(text.split()).lower() != "".join("".join(NAME.findall(text)).split()).lower():
                return
            if not all(_known(name) for name in names):
                return
        self._keep(names)

    def _keep(self, names: list[str]) -> None:
        if names == EXPORTED:
            self._names = ["wall time", "step", self._of_file or "value"]
            self.unnamed = not self._of_file
            return
        counted = any(name in STEPS or name in EPOCHS for name in names)
        if counted and any(name in TRAIN or name in VAL for name in names) and len(names) <= MOST_COLUMNS:
            # Where several runs stand side by side, the first is read.
            self._names = [name if name not in names[:at] else "" for at, name in enumerate(names)]
            self.left_out = sum(name in TRAIN or name in VAL for name in names) - sum(
                name in TRAIN or name in VAL for name in self._names
            )

    def _cells(self, text: str) -> list[str]:
        if self._separator == "  ":
            return GAP.split(text.strip())
        if self._separator == " ":
            return text.replace("No log", "-").split()
        cells = text.split(self._separator)
        filled = [cell for cell in cells if cell.strip()]
        if self._separator == "\t" and len(cells) != len(self._names) == len(filled):
            cells = filled
        if self._separator == "|" and text.lstrip().startswith("|"):
            cells = cells[1:]
        return [cell.strip().strip("\"'*") for cell in cells]

    def _row(self, cells: list[str]) -> Row | None:
        said = Printed()
        more: dict[str, float] = {}
        if self._separator == " " and len(cells) < len(self._names):
            return None
        if self._separator != ",":
            cells = [_with_point(name, cell) for name, cell in zip(self._names, cells, strict=False)]
        for name, cell in zip(self._names, cells, strict=False):
            whole = NUMBER.fullmatch(cell)
            value = float(cell) if whole is not None else math.nan
            if name in STEPS:
                said.step = value
            elif name in EPOCHS:
                said.epoch = value
            elif name in TRAIN and not said.has_loss:
                said.loss, said.has_loss = value, whole is not None
            elif name in VAL and not said.has_val_loss:
                said.val_loss, said.has_val_loss = value, whole is not None
            else:
                more |= {field: value for field, names in FURTHER.items() if name in names}
        return Row(said, **more) if said.counts else None


def _quantity_in(file: str) -> str:
    """The column that a file's name calls its values, as in `run-1-tag-val_loss.csv`; else empty."""
    words = re.split(r"[^a-z]+", Path(file).stem.lower())
    if "lr" in words or {"learning", "rate"} <= set(words):
        return "lr"
    if "loss" not in words:
        return ""
    tag = set(words[words.index("tag") :]) if "tag" in words else set(words)
    return "val loss" if tag & VALIDATION and not tag & TRAINING else "loss"


def _with_point(name: str, cell: str) -> str:
    """A number without commas: of a step they part thousands, of the others decimals."""
    return THOUSANDS.sub("", cell) if name in STEPS else LOSS_CELL.sub(r"\1.\2", cell)


def _plain(name: str) -> str:
    """A column's name as the sets above have it; W&B writes the run's name and a dash in front."""
    own = name.strip().strip("\"'*").lower().rpartition(" - ")[2]
    joined = " ".join(filter(None, re.split(r"[\s_/]+", own)))
    return "global_step" if joined in ("global step", "trainer global step", "train global step") else joined


def _known(name: str) -> bool:
    return any(name in names for names in (STEPS, EPOCHS, TRAIN, VAL, *FURTHER.values()))

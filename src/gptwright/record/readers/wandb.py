"""The summary that Weights & Biases prints at the end of a run: the last value of each quantity, by its name.

It is one point of a run. A log that has evaluations says more, so it counts only where there are none; and
where the step it names lies before the log's last one, it is left alone.
"""

import math
import re
from collections.abc import Mapping

from gptwright.record.evidence import NUMBERED
from gptwright.record.readers.build import Builder
from gptwright.record.readers.headers import Said, fact
from gptwright.record.readers.printed_fields import printed
from gptwright.record.readers.printed_speeds import learning_rate
from gptwright.record.readers.shapes import Columns

BEGIN = re.compile(r"^wandb: +(?:Run s|S)ummary:$|^wandb: +Run summary ")
ANY = re.compile(r"^wandb:(?: |$)")
ENTRY = re.compile(r"^wandb: +([\w./-]{1,60}) +(\S{1,40})$")
TRAIN = Columns("train", "step", "loss", "learning_rate")
EVAL = Columns("eval", "step", "val_loss")
BOTH = Columns("eval", "step", "train_loss", "val_loss")


def of_wandb(text: str) -> bool:
    """Whether W&B wrote a line, which is no trainer's then."""
    return ANY.match(text) is not None


class Summary:
    """Reads the lines of a summary.

    Attributes:
        entries: what it says, as printed, with its line.
    """

    def __init__(self) -> None:
        self.entries: dict[str, tuple[str, int]] = {}
        self._open = False

    def take(self, text: str, line: int) -> bool:
        """Takes a line if W&B wrote it."""
        if not of_wandb(text):
            self._open = False
            return False
        if BEGIN.match(text):
            self.entries, self._open = {}, True
        entry = ENTRY.match(text) if self._open else None
        if entry is not None:
            self.entries[entry[1]] = entry[2], line
        return True


def add_summary(build: Builder, entries: Mapping[str, tuple[str, int]], *, evaluates_train: bool) -> None:
    """Adds the point of a summary to a log that has no evaluations.

    Args:
        build: what was read of the log.
        entries: of the summary.
        evaluates_train: whether the trainer's training loss there is that of an evaluation.
    """
    kinds = {columns.kind for columns, rows in build.tables.items() if rows}
    if not entries or "eval" in kinds:
        return
    text = ", ".join(f"{name}: {value}" for name, (value, _) in entries.items())
    said = printed(text)
    if not (said.has_loss or said.has_val_loss):
        return
    last = _last_step(build)
    if last is not None and not said.step >= last:
        return
    step = said.step
    at = [line for name, (value, line) in entries.items() if printed(f"{name}: {value}").step == step]
    if at:
        build.header["last_step"] = fact(Said("last_step", int(step)), at[0])
    if math.isnan(step):
        step = 1.0
        build.hazards[NUMBERED] += 1
    lines = [line for name, (_, line) in entries.items() if "loss" in name.lower()]
    val = [line for name, (_, line) in entries.items() if printed(f"{name}: 1.0").has_val_loss]
    if last is None and evaluates_train and said.has_loss and said.has_val_loss:
        build.row(BOTH, (val or lines)[-1], (step, said.loss, said.val_loss))
        return
    if last is None and said.has_loss:
        build.row(TRAIN, min(lines), (step, said.loss, learning_rate(text)))
    if said.has_val_loss:
        build.row(EVAL, (val or lines)[-1], (step, said.val_loss))


def _last_step(build: Builder) -> float | None:
    """The largest step of the training lines; None where there are none."""
    steps: list[float] = []
    for columns, rows in build.tables.items():
        names = [field.column for field in columns.fields]
        if rows and columns.kind == "train" and "step" in names:
            steps.append(max(rows[1 + names.index("step") :: 1 + len(names)]))
    return max(steps, default=None)

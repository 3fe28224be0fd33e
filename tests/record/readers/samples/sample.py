"""A log, and what it says, written down together."""

from dataclasses import dataclass, field
from typing import Any

Row = dict[str, float]


@dataclass(slots=True)
class Sample:
    """A log and what it says.

    Attributes:
        name: of the variant.
        format: the reader's name for the trainer.
        lines: of the log.
        train: training rows: line, step and whatever else the line says.
        evals: evaluations likewise.
        header: facts by name.
        settings: echoed settings.
        events: kinds of event in order.
        hazards: hazards that the log itself has.
    """

    name: str
    format: str
    lines: list[str] = field(default_factory=list)
    train: list[Row] = field(default_factory=list)
    evals: list[Row] = field(default_factory=list)
    header: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    events: list[str] = field(default_factory=list)
    hazards: dict[str, int] = field(default_factory=dict)

    @property
    def text(self) -> str:
        return "\n".join(self.lines) + "\n"

    def say(self, text: str, **header: Any) -> int:
        """Adds a line; `header` is what it says. Returns its number."""
        self.lines.append(text)
        self.header |= header
        return len(self.lines)

    def row(self, text: str, **values: float) -> None:
        """Adds a training line."""
        self.train.append({"line": self.say(text), **values})

    def evaluation(self, text: str, **values: float) -> None:
        """Adds a line of an evaluation."""
        self.evals.append({"line": self.say(text), **values})


def loss_at(step: float, start: float = 10.8) -> float:
    """Some loss that falls."""
    return 3.0 + (start - 3.0) / (1 + step / 150)

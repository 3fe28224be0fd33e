"""A run and how it is handed over: a config that may have false comments, stated facts, a damaged log.

`Truth` is the run as it happened; `Handover` is what a person gives away of it. A fault changes one of them.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.simulator.truth import Truth, Value


@dataclass(frozen=True, slots=True, kw_only=True)
class Insertion:
    """A line that somebody else wrote into the log, after the lines of `step` (-1: before the first)."""

    step: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Handover:
    """What a person gives away of a run.

    Attributes:
        config: `config.py`, `config.toml`, or empty for none.
        settings: what the config says.
        comments: field → comment behind it.
        preamble: comment lines on top of the config.
        facts: facts.toml.
        header: whether the log's header is there.
        visible_from: lines of earlier steps are cut away.
        visible_until: lines of later steps are cut away; None for none.
        without: lines that hold one of these texts are left out.
        hazards: damage to the log, names of `hazards.HAZARDS`.
        insertions: foreign lines.
    """

    config: str
    settings: Mapping[str, Value]
    comments: Mapping[str, str] = field(default_factory=dict)
    preamble: tuple[str, ...] = ()
    facts: Mapping[str, Value] = field(default_factory=dict)
    header: bool = True
    visible_from: int = 0
    visible_until: int | None = None
    without: tuple[str, ...] = ()
    hazards: tuple[str, ...] = ()
    insertions: tuple[Insertion, ...] = ()

    def but(self, **changes: object) -> "Handover":
        """The same with some things different."""
        return dataclasses.replace(self, **changes)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run and how it is handed over, before it becomes files.

    Attributes:
        expected: finding ids that must fire.
        allowed: ids that may fire at any severity besides.
    """

    truth: Truth
    handover: Handover
    expected: frozenset[str] = frozenset()
    allowed: frozenset[str] = frozenset()

    def but(self, **changes: object) -> "Run":
        """The same with some things different."""
        return dataclasses.replace(self, **changes)  # type: ignore[arg-type]

    def with_truth(self, **changes: object) -> "Run":
        """The same with other truths."""
        return self.but(truth=self.truth.but(**changes))

    def with_trouble(self, **changes: object) -> "Run":
        """The same with more trouble."""
        trouble = dataclasses.replace(self.truth.trouble, **changes)  # type: ignore[arg-type]
        return self.with_truth(trouble=trouble)

    def with_handover(self, **changes: object) -> "Run":
        """The same, handed over otherwise."""
        return self.but(handover=self.handover.but(**changes))

    def with_settings(self, **changes: Value) -> "Run":
        """The same with other values in the config."""
        return self.with_handover(settings={**self.handover.settings, **changes})

    def with_facts(self, **changes: Value | None) -> "Run":
        """The same with other stated facts; None takes one away."""
        facts = {**self.handover.facts, **changes}
        return self.with_handover(facts={name: fact for name, fact in facts.items() if fact is not None})

    def expecting(self, *ids: str) -> "Run":
        """The same with more findings that must fire."""
        return self.but(expected=self.expected | set(ids))

    def allowing(self, *ids: str) -> "Run":
        """The same with more findings that may fire."""
        return self.but(allowed=self.allowed | set(ids))

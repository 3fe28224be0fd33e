"""What the suite found, as values and as JSON; known without torch, so that it can be shown without it."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from gptwright.bench.results import Peaks

OURS, NANOGPT = "gptwright", "nanoGPT"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionTime:
    """One shape.

    Attributes:
        shape: sequences, heads, tokens, channels of a head.
        seconds: forward and backward, by kernel; `default` is torch's own choice, None where one cannot run.
    """

    shape: tuple[int, int, int, int]
    seconds: dict[str, float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A case as one trainer did it.

    Attributes:
        case: its name.
        model: of the case.
        micro_batch: of the case.
        compiled: of the case.
        for_both: whether nanoGPT can do the same.
        trainer: `gptwright` or `nanoGPT`.
        status: `done`, `out of memory`, `out of time` or `failed`.
        why: what it printed last, where it failed.
        wall_seconds: of the process, until nothing more was wanted of it.
        start_seconds: until its first step's line: start-up, compilation, a first evaluation and one step.
        step_seconds: median over the intervals between lines; None where there are none.
        tokens_per_second: from it.
        flops_per_token: of the model, `palm` convention, by our own count for both.
        device_bytes: most memory in use on the device; resident memory of the process on a CPU.
    """

    case: str
    model: str
    micro_batch: int
    compiled: bool
    for_both: bool
    trainer: str
    status: str
    why: str | None
    wall_seconds: float
    start_seconds: float | None
    step_seconds: float | None
    tokens_per_second: float | None
    flops_per_token: int
    device_bytes: int

    def document(self, peaks: Mapping[str, float | None]) -> dict[str, Any]:
        """As JSON has it, with its share of each peak."""
        rate = self.tokens_per_second
        shares = {
            f"mfu_of_{name}": self.flops_per_token * rate / peak if rate and peak else None
            for name, peak in peaks.items()
        }
        return asdict(self) | shares


@dataclass(frozen=True, slots=True, kw_only=True)
class Racer:
    """One trainer's race.

    Attributes:
        trainer: who.
        recipe: a preset of ours, or nanoGPT's own defaults.
        planned_steps: of its schedule.
        last_step: whose line arrived last; None without any.
        passes: over the training data until then.
        finished: whether it came to the end of its schedule in time.
        wall_seconds: of its process.
        evaluations: what it printed: step, seconds from its start, validation loss.
        val_loss: at the end; None where there is none.
        val_loss_standard_error: of ours.
        measured_by: how that loss came about.
        device_bytes: most memory in use on the device; resident memory on a CPU.
        own_peak_bytes: what ours says of itself: the allocator's largest reserve.
        why: what it printed last, where it has no loss.
    """

    trainer: str
    recipe: str
    planned_steps: int
    last_step: int | None
    passes: float
    finished: bool
    wall_seconds: float
    evaluations: tuple[tuple[int, float, float], ...]
    val_loss: float | None
    val_loss_standard_error: float | None
    measured_by: str
    device_bytes: int
    own_peak_bytes: int | None
    why: str | None

    def document(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """What was not run, and why."""

    what: str
    why: str


@dataclass(slots=True, kw_only=True)
class SuiteResult:
    """What the suite found.

    Attributes:
        peaks: of the machine, measured in this run.
        tabled_peak: the card's dense peak on paper, FLOP/s, in the dtype of training; None if unknown.
        tabled_name: whose row of the table that is.
        device_bytes: the device's memory.
        budget_seconds: what was given.
        data: what was trained on.
        spent_seconds: what it took.
        attention: kernels of one layer.
        cases: what was run.
        race: both trainers; empty where it was left out.
        left_out: what was not.
    """

    peaks: Peaks
    tabled_peak: float | None
    tabled_name: str | None
    device_bytes: int
    budget_seconds: float
    data: dict[str, Any] = field(default_factory=dict)
    spent_seconds: float = 0.0
    attention: list[AttentionTime] = field(default_factory=list)
    cases: list[Measured] = field(default_factory=list)
    race: list[Racer] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)

    @property
    def by_peak(self) -> dict[str, float | None]:
        """What a share of the peak is a share of."""
        return {"measured_peak": self.peaks.matmul_flops, "tabled_peak": self.tabled_peak}

    def pairs(self) -> list[tuple[Measured, Measured]]:
        """Ours and nanoGPT's of each case in which both have a speed."""
        timed = {(m.case, m.trainer): m for m in self.cases if m.tokens_per_second}
        return [
            (ours, timed[name, NANOGPT])
            for (name, trainer), ours in timed.items()
            if trainer == OURS and (name, NANOGPT) in timed
        ]

    def fastest(self, model: str, trainer: str) -> Measured | None:
        """A trainer's fastest case of a model, of those that both can do."""
        with_speed = [m for m in self.cases if (m.model, m.trainer) == (model, trainer) and m.for_both]
        return max(with_speed, key=lambda m: m.tokens_per_second or 0.0, default=None)

    def document(self) -> dict[str, Any]:
        """Everything as JSON."""
        return {
            "schema": "gptwright.bench.suite/1",
            **asdict(self.peaks),
            "tabled_peak": self.tabled_peak,
            "tabled_name": self.tabled_name,
            "device_bytes": self.device_bytes,
            "budget_seconds": self.budget_seconds,
            "spent_seconds": self.spent_seconds,
            "data": self.data,
            "attention": [asdict(each) for each in self.attention],
            "cases": [each.document(self.by_peak) for each in self.cases],
            "ratios": [
                {
                    "case": ours.case,
                    "tokens_per_second": (ours.tokens_per_second or 0.0) / (theirs.tokens_per_second or 1.0),
                    "device_bytes": ours.device_bytes / theirs.device_bytes if theirs.device_bytes else None,
                }
                for ours, theirs in self.pairs()
            ],
            "race": [each.document() for each in self.race],
            "left_out": [asdict(each) for each in self.left_out],
        }

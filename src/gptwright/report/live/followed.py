"""One run under watch: all that is known of it. A look at it costs one `stat` when nothing happened."""

import contextlib
import json
import time
import tomllib
from dataclasses import dataclass, field
from typing import Any

from gptwright.hardware.table import find_spec
from gptwright.record.follow import Follower
from gptwright.record.lock import process_of
from gptwright.record.progress import RunProgress, whole
from gptwright.report.live.diagnoser import Answer
from gptwright.report.live.finding import Found
from gptwright.report.live.states import State, foreign_state, state_of

# A change must show within a second while a run goes on; ended ones only change when somebody resumes them.
LIVE_LOOK = 0.3
ENDED_LOOK = 3.0
LIVE = ("running", "stalled")
# A diagnosis beside training takes at most this share of one core.
DIAGNOSIS_SHARE = 0.02
SOONEST_AGAIN = 10.0


@dataclass(slots=True)
class Machine:
    """Where a run of ours trains, as its run.json says.

    Attributes:
        device: its name.
        watts: the board's power limit, of the table; None for devices without one there.
    """

    device: str | None = None
    watts: float | None = None


@dataclass(slots=True)
class FollowedRun:
    """A run, as far as it has been followed.

    Attributes:
        found: where it lies.
        progress: folded from the record of a run of ours.
        state: what it does, and how that is known.
        machine: where it trains.
        answer: the last diagnosis, or why there is none; None before the first.
        charts: those of the last diagnosis of a foreign log, as JSON; None where nobody wanted them.
        version: rises with every change that a page should show.
    """

    found: Found
    progress: RunProgress = field(default_factory=RunProgress)
    state: State = field(default_factory=lambda: State("running", ""))
    machine: Machine = field(default_factory=Machine)
    answer: Answer | None = None
    charts: str | None = None
    version: int = 1
    _follower: Follower = field(init=False)
    _next_look: float = 0.0
    _log_seen: tuple[int, int] | None = None
    changed: float = 0.0
    _diagnosed_at: float = 0.0
    _diagnosis_due: float = 0.0

    def __post_init__(self) -> None:
        self._follower = Follower(self.found.log)

    def look(self, now: float) -> bool:
        """Takes what is new, if a look is due; whether there is more to read at once."""
        if now < self._next_look:
            return False
        more = self._look_at_ours() if self.found.ours else self._look_at_foreign()
        state = self._state_now(now)
        if state.name != self.state.name:
            self.version += 1
        self.state = state
        self._next_look = now + (LIVE_LOOK if state.name in LIVE else ENDED_LOOK)
        if more:
            self._next_look = 0.0
        return more

    def _look_at_ours(self) -> bool:
        news = self._follower.look()
        if news.restarted:
            self.progress = RunProgress()
            self._log_seen = None
        if news.lines or news.restarted:
            self.version += 1
            self.changed = self._follower.changed
        for record in news.records():
            self.progress.add(record)
            if record.get("kind") in ("start", "resume"):
                self._log_seen = None
        if self._log_seen is None and not news.more:
            self._log_seen = (0, 0)
            self._read_beside()
        return news.more

    def _read_beside(self) -> None:
        """What config.toml and run.json say, which are written before a process records anything."""
        folder = self.found.path
        with contextlib.suppress(OSError, ValueError):
            config = tomllib.loads((folder / "config.toml").read_text("utf-8"))
            self.progress.max_iters = whole(config.get("max_iters")) or self.progress.max_iters
            self.progress.eval_interval = whole(config.get("eval_interval"))
        with contextlib.suppress(OSError, ValueError, AttributeError):
            said = json.loads((folder / "run.json").read_bytes())
            device = said.get("machine", {}).get("device")
            if isinstance(device, str):
                match = find_spec(device)
                self.machine = Machine(device, match.spec.power_watts if match is not None else None)

    def _look_at_foreign(self) -> bool:
        try:
            status = self.found.log.stat()
        except OSError:
            return False
        seen = (status.st_size, status.st_mtime_ns)
        if seen != self._log_seen:
            self._log_seen = seen
            self.changed = status.st_mtime
            self.version += 1
        return False

    def _state_now(self, now: float) -> State:
        if self.found.ours:
            process = process_of(self.found.path) if self.progress.ending is None else None
            return state_of(self.progress, changed=self.changed, now=now, process=process)
        run = self.run_numbers
        return foreign_state(
            last_step=run.get("last_step"),
            planned_steps=(self.answer or {}).get("planned_steps"),
            changed=self.changed,
            now=now,
        )

    @property
    def run_numbers(self) -> dict[str, Any]:
        """The numbers of the last diagnosis; empty before it."""
        return dict((self.answer or {}).get("diagnosis", {}).get("run", {}))

    def wants_diagnosis(self, now: float, *, viewed: bool) -> bool:
        """Whether there is something new to diagnose, and it is time; of unseen runs only what has ended."""
        if viewed and not self.found.ours and self.charts is None:
            return True
        if self.answer is not None and self._diagnosed_at >= self.changed:
            return False
        if self.answer is not None and self.state.name in LIVE and not viewed:
            return False
        return now >= self._diagnosis_due

    def diagnosed(self, answer: Answer, *, began: float, with_charts: bool) -> None:
        """Takes a diagnosis that was begun at a time, with or without its charts."""
        now = time.time()
        charts = answer.pop("charts", None) or ""
        # Charts are large, and kept for as long as somebody looks.
        self.charts = charts if with_charts else None
        self.answer = answer
        self._diagnosed_at = began
        self._diagnosis_due = now + max(SOONEST_AGAIN, (now - began) / DIAGNOSIS_SHARE)
        self.version += 1

    @property
    def name(self) -> str:
        """What a person calls it."""
        return self.found.id if self.found.id != "." else self.found.path.name

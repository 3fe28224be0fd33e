"""Whether a run still goes on, by a rule that can be stated.

A run whose record ends says how: finished, stopped or failed. One that says nothing is stalled at once if its
process, as the run's lock names it, is gone from this machine; and else when nothing was recorded for ten
times its usual interval, three times its longest recent one (evaluations, slow steps), and ten seconds.
Before there are intervals it has five minutes, which compiling and a first evaluation may take.

The log of another trainer does not say that it ended: it is running while it grows, finished at its planned
steps, and otherwise just quiet.
"""

import os
import time
from dataclasses import dataclass
from pathlib import Path

from gptwright import units
from gptwright.record.progress import RunProgress

SHORTEST_PATIENCE = 10.0
USUAL_GAPS = 10.0
LONGEST_GAPS = 3.0
FIRST_PATIENCE = 300.0
# Other trainers print at least once a minute, or nobody would watch them.
FOREIGN_PATIENCE = 60.0


@dataclass(frozen=True, slots=True)
class State:
    """What a run is doing, in one word, and how that is known."""

    name: str
    reason: str


def state_of(progress: RunProgress, *, changed: float, now: float, process: int | None) -> State:
    """The state of a run of ours.

    Args:
        progress: folded from its record.
        changed: when the record's file was last written to, in seconds since 1970.
        now: the time.
        process: the run's process on this machine; None where that is not known.
    """
    if progress.ending is not None:
        return State(progress.ending, progress.reason or f"the record ends so at step {progress.step:,}")
    last = max(changed, progress.updated or 0.0)
    if process is not None and not is_alive(process):
        return State("stalled", f"its process {process} is gone; the last record is of {_clock(last)}")
    patience = patience_of(progress)
    if now - last > patience:
        rule = f"after {units.duration(patience)} without one it counts as stalled"
        return State("stalled", f"the last record is of {_clock(last)}; {rule}")
    return State("running", "its record grows")


def patience_of(progress: RunProgress) -> float:
    """Seconds without a record after which a run counts as stalled."""
    usual = progress.usual_gap
    if usual is None:
        return FIRST_PATIENCE
    return max(SHORTEST_PATIENCE, USUAL_GAPS * usual, LONGEST_GAPS * progress.longest_gap)


def foreign_state(
    *, last_step: float | None, planned_steps: float | None, changed: float, now: float
) -> State:
    """The state of a run that another trainer logs."""
    if last_step is not None and planned_steps is not None and last_step >= planned_steps:
        return State("finished", f"its planned {planned_steps:,.0f} steps are made")
    if now - changed <= FOREIGN_PATIENCE:
        return State("running", "its log grows")
    return State("quiet", f"its log last grew at {_clock(changed)}, and does not say whether the run ended")


def is_alive(process: int) -> bool:
    """Whether a process exists on this machine; a dead one that nobody has waited for does not."""
    stat = Path(f"/proc/{process}/stat")
    if stat.parent.parent.joinpath("self").exists():
        try:
            # The state follows the name, which stands in parentheses and may hold any character.
            return stat.read_text("utf-8", "replace").rpartition(")")[2].split()[0] not in ("Z", "X")
        except (OSError, IndexError):
            return False
    if os.name != "posix":
        # os.kill would end it there; without a way to ask, the time decides.
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _clock(when: float) -> str:
    """A time as this machine's clock shows it: it stays the same, so that no page is told of it again."""
    return time.strftime("%H:%M:%S on %d %B", time.localtime(when))

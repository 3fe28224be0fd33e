"""Going back to the last good checkpoint and past a bad stretch of data.

Good is the newest whole checkpoint from before the first update that was refused. The run goes on from there
with the batches after the stretch, from the second time on at half the rate. The record is cut as a resume
cuts it, one line says what happened, and the checkpoint is written anew with the changed state, so that a
crash right after changes nothing. Of several processes, the first one chooses the checkpoint and all go back
to it; what they decide follows from numbers that are the same in each.
"""

from dataclasses import dataclass
from pathlib import Path

from gptwright import units
from gptwright.errors import RunFailedError, typed
from gptwright.record.run import RunFolder, checkpoint_name
from gptwright.train.checkpoint import LoadedCheckpoint
from gptwright.train.guards import RATE_FACTOR
from gptwright.train.retention import before_trouble
from gptwright.train.seal import damage_of
from gptwright.train.session import Session
from gptwright.train.state import TrainState
from gptwright.train.together import load_together


@dataclass(frozen=True, slots=True)
class WentBack:
    """A run put back into a checkpoint, with the state that it goes on with."""

    loaded: LoadedCheckpoint
    state: TrainState
    batches_passed_over: int


def roll_back(
    run: RunFolder, session: Session, state: TrainState, *, first: int, last: int
) -> WentBack | None:
    """Puts a session back, in all processes together; None where no good checkpoint is left.

    Args:
        run: its checkpoints; later ones than the one taken are removed.
        session: its model, optimizer and scaler are overwritten.
        state: where the run is.
        first: the first update of the trouble.
        last: the last one; the batches up to it are passed over.
    """
    good = session.world.from_first(lambda: _newest_good(run, first))
    if good is None:
        return None
    loaded = load_together(run, good, session)
    back = loaded.state
    batches = last - back.step + 1
    back.passed_over.append((back.step, batches))
    back.rollbacks = state.rollbacks + 1
    back.elapsed_seconds, back.kept_at_seconds = state.elapsed_seconds, state.kept_at_seconds
    if back.rollbacks > 1:
        back.rate_scale = state.rate_scale * RATE_FACTOR
    if session.world.is_first:
        _forget_later(run, good, back)
    return WentBack(loaded, back, batches)


def no_way_on(
    path: Path, problem: str, *, rollbacks: int, why: str, good: str | None, rate: float
) -> RunFailedError:
    """The error that ends a run for which going back is of no use.

    Args:
        path: the run folder.
        problem: what happened, and where.
        rollbacks: how often the run had gone back.
        why: what its weights are now.
        good: a checkpoint that a person may go on from; None: there is none.
        rate: a learning rate to try.
    """
    return RunFailedError(
        problem + (f", after {units.counted(rollbacks, 'rollback')}" if rollbacks else ""),
        why=f"{why}; `gptwright diagnose {typed(path)}` says what preceded it",
        fix=f"to go on from before it: `gptwright resume {typed(path)} --checkpoint={good}"
        f" --learning_rate={rate:g}`"
        if good
        else f"there is no checkpoint to go back to; start again: --learning_rate={rate:g}",
    )


def _newest_good(run: RunFolder, first: int) -> str | None:
    before = before_trouble(run, first)
    return next((name for name in reversed(before) if damage_of(run.checkpoints / name) is None), None)


def _forget_later(run: RunFolder, good: str, back: TrainState) -> None:
    for later in reversed([name for name in run.checkpoint_names() if name > good]):
        run.remove_checkpoint(later)
    if back.best_step is not None and checkpoint_name(back.best_step) in run.checkpoint_names():
        run.point("best", checkpoint_name(back.best_step))

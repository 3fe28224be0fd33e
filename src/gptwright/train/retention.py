"""Which checkpoints stay: the newest, the best, one every so many hours, and one to go back to.

Hours are those that the run trained, by a clock that only runs forward, so that a wrong clock of the machine
neither keeps nor removes anything.
"""

import json
from collections.abc import Callable, Sequence

from gptwright.record.run import RunFolder, checkpoint_name
from gptwright.train.guards import trouble_began
from gptwright.train.state import TrainState


def outlived(
    names: Sequence[str],
    *,
    planned: Sequence[str],
    newest: int,
    best: str | None,
    good: str | None,
    for_good: Callable[[str], bool],
) -> list[str]:
    """The checkpoints to remove.

    Args:
        names: all, oldest first; the last one stays.
        planned: those that the settings ask for. One that a stop made is extra and goes when a newer one is
            there, so that stopping and resuming changes nothing of what a run may go back to.
        newest: how many of the newest planned ones stay.
        best: the one with the lowest validation loss.
        good: the newest from before the trouble that a run is in.
        for_good: whether one was written to stay.
    """
    stay = {names[-1], best, good, *planned[-newest:]} if names else set()
    return [name for name in names if name not in stay and not for_good(name)]


def before_trouble(run: RunFolder, began: int) -> list[str]:
    """The checkpoints that a run may go back to, oldest first: planned ones, or if there is none, any."""
    names = [name for name in run.checkpoint_names() if name <= checkpoint_name(began)]
    return [name for name in names if is_planned(run, name)] or names


def prune_checkpoints(run: RunFolder, state: TrainState, newest: int) -> None:
    """Removes what has been outlived."""
    names = run.checkpoint_names()
    began = trouble_began(state.skipped)
    good = before_trouble(run, began) if began is not None else []
    for name in outlived(
        names,
        planned=[name for name in names if is_planned(run, name)],
        newest=newest,
        best=run.pointed("best"),
        good=good[-1] if good else None,
        for_good=lambda name: is_for_good(run, name),
    ):
        run.remove_checkpoint(name)


def is_for_good(run: RunFolder, name: str) -> bool:
    """Whether a checkpoint was written to stay; a damaged one was not."""
    return _says(run, name, "for_good", default=False)


def is_planned(run: RunFolder, name: str) -> bool:
    """Whether a checkpoint was due by the settings; False for one that a stop made."""
    return _says(run, name, "planned", default=True)


def _says(run: RunFolder, name: str, field: str, *, default: bool) -> bool:
    try:
        content = json.loads((run.checkpoints / name / "state.json").read_bytes())
        return bool(content["checkpoint"].get(field, default))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return False


def to_stay(state: TrainState, hours: float) -> bool:
    """Whether the checkpoint that is about to be written stays for good; marks the time if so."""
    if not hours or state.elapsed_seconds - state.kept_at_seconds < hours * 3600:
        return False
    state.kept_at_seconds = state.elapsed_seconds
    return True

"""From which checkpoint a run goes on: the newest that is whole, unless one is named.

Whole means that every file has its recorded sha256 and that the metrics file still holds what it held when
the checkpoint was written. What is not whole is passed over with a warning: the steps are made again, and end
in the same weights.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gptwright.config.schema import TrainConfig
from gptwright.errors import CheckpointError, ConfigError, typed
from gptwright.optim.schedule import learning_rate
from gptwright.record.metrics import require_length
from gptwright.record.run import RunFolder
from gptwright.train.seal import damage_of, verified_payload

# A rate that rises by more than this on resume lifts the loss; schedules alone change it by less in a step.
LARGEST_RISE = 1.5


@dataclass(frozen=True, slots=True)
class Chosen:
    """A checkpoint with its verified contents (None: the run begins anew), and what was passed over."""

    name: str | None
    payload: Mapping[str, Any]
    warnings: tuple[str, ...] = ()


def choose_checkpoint(run: RunFolder, asked: str | None) -> Chosen:
    """The checkpoint to go on from.

    Args:
        run: the run.
        asked: a name, `last` or `best`; None: the newest that is whole.

    Raises:
        CheckpointError: the one that was asked for is missing or damaged, or all are.
        RunError: the metrics file is shorter than any checkpoint remembers.
    """
    names = run.checkpoint_names()
    if asked is None:
        return _newest_whole(run, names)
    if asked in ("last", "best"):
        asked = run.pointed(asked) or asked
    if asked not in names:
        raise CheckpointError(
            f"{run.path} has no checkpoint {asked!r}",
            fix=f"it has {', '.join(names)}" if names else "it has none; resume without --checkpoint",
        )
    payload = verified_payload(run, asked)
    require_length(run.metrics_path, payload["metrics_bytes"])
    return Chosen(asked, payload)


def _newest_whole(run: RunFolder, names: list[str]) -> Chosen:
    # By name and not by the pointer: a crash between a checkpoint's rename and the pointer's leaves a newer
    # whole one.
    if not names:
        return Chosen(None, {})
    length = run.metrics_path.stat().st_size if run.metrics_path.exists() else 0
    warnings: list[str] = []
    for name in reversed(names):
        damage = damage_of(run.checkpoints / name)
        if damage is None:
            payload = verified_payload(run, name)
            if payload["metrics_bytes"] <= length:
                return Chosen(name, payload, tuple(warnings))
            damage = f"metrics.jsonl has {length} of the {payload['metrics_bytes']} bytes that it had then"
        warnings.append(f"checkpoint {name} cannot be used: {damage}; the one before is taken")
    newest = verified_payload(run, names[-1])
    require_length(run.metrics_path, newest["metrics_bytes"])
    raise AssertionError("one of the two was what kept the newest checkpoint from being chosen")


def require_same_rate(before: TrainConfig, now: TrainConfig, *, step: int, run: RunFolder) -> None:
    """Refuses a learning rate that jumps up where a run goes on.

    Raises:
        ConfigError: it does.
    """
    old, new = learning_rate(before, step), learning_rate(now, step)
    if new <= LARGEST_RISE * old:
        return
    raise ConfigError(
        f"the learning rate at step {step} was {old:.3g} and would jump to {new:.3g}",
        why="the loss rises at once and takes hundreds or thousands of steps to come back; a longer"
        " lr_decay_iters does this too",
        fix=f"if it is meant: `gptwright resume {typed(run.path)} … --allow-lr-jump`; to go on at the rate"
        f" that it has: --decay_lr=False --learning_rate={old:.6g}",
    )

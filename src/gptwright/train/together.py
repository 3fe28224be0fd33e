"""Checkpoints of several processes: one format to go on with any number of them, sharded or not.

Copies that are all alike (`ddp`, or one process) are written by the first process in the format of
`gptwright.train.checkpoint`, and read by it and spread over the network: only its machine needs the run
folder. Sharded ones (`fsdp`) are written by all, each its part, beside the one `state.json`; for that the
run folder must be on a disk that all machines share. Either is read under the other division and by one
process.
"""

import shutil
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from gptwright.errors import CheckpointError
from gptwright.files import disk_full_as_error
from gptwright.record.run import RunFolder, checkpoint_name
from gptwright.train.checkpoint import (
    Checkpointed,
    CheckpointInfo,
    LoadedCheckpoint,
    fixed_settings,
    load_checkpoint,
    payload_of,
    publish,
    put_scaler,
    require_fitting,
    require_space,
)
from gptwright.train.parts import read_parts, write_parts
from gptwright.train.seal import file_identity, verified_payload
from gptwright.train.session import Session
from gptwright.train.state import TrainState
from gptwright.train.tensors import empty_moments, moments_of, optimizer_step, put_moments, weights_of
from gptwright.train.world import World


def checkpointed(session: Session) -> Checkpointed:
    """What a checkpoint of a session is taken of, and put back into."""
    return Checkpointed(
        model=session.model,
        optimizer=session.optimizer,
        scaler=session.scaler,
        fixed=fixed_settings(session.config, session.vocab_size),
        dataset_fingerprint=session.dataset.fingerprint,
    )


def save_parts(run: RunFolder, session: Session, state: TrainState, info: CheckpointInfo) -> None:
    """Writes a checkpoint of a sharded model; all processes call it together, and wait for it.

    Args:
        run: where it goes.
        session: what is trained.
        state: where the run is.
        info: what else it remembers, in the first process.

    Raises:
        DiskFullError: there is no room; nothing half-written is left, and older checkpoints stay.
        PeerFailedError: another process could not write.
    """
    world = session.world
    beside = run.checkpoints / f".{checkpoint_name(state.step)}.partial"
    tensors = weights_of(session.model) | moments_of(session.model, session.optimizer)

    def begin() -> None:
        require_space(run.checkpoints, sum(t.numel() * t.element_size() for t in tensors.values()))
        beside.mkdir(exist_ok=True)

    def end() -> None:
        payload = payload_of(state, checkpointed(session), info)
        publish(run, beside, payload | {"files": {k: v for part in parts for k, v in part.items()}})

    try:
        with disk_full_as_error(run.checkpoints):
            world.from_first(begin)
            written = write_parts(beside, tensors, rank=world.rank)
            parts = world.all_gather({file.name: file_identity(file) for file in written})
            world.from_first(end)
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        raise


def load_together(
    run: RunFolder, name: str, session: Session, *, payload: Mapping[str, Any] | None = None
) -> LoadedCheckpoint:
    """Puts a checkpoint into the model and optimizer of every process, which call it together.

    Args:
        run: the run.
        name: the checkpoint's name.
        session: gets it.
        payload: its contents, where the first process has verified them just now.

    Raises:
        CheckpointError: it is damaged, or config or dataset have changed.
        PeerFailedError: the first process found that.
    """
    world, into = session.world, checkpointed(session)
    if session.replica.sharded:
        told = world.from_first(lambda: payload or verified_payload(run, name))
        require_fitting(run.checkpoints / name, told, into)
        _read_shards(run, name, session, told["optimizer_step"])
        put_scaler(session.scaler, told["scaler"])
        return LoadedCheckpoint.of(name, told)

    def load() -> dict[str, Any]:
        loaded = load_checkpoint(run, name, into, payload=payload)
        return asdict(loaded) | {
            "has_moments": bool(session.optimizer.state),
            "optimizer_step": optimizer_step(session.optimizer),
            "scaler": session.scaler.state_dict(),
        }

    told = world.from_first(load)
    if world.size > 1:
        _broadcast(session, told["optimizer_step"], has_moments=told["has_moments"])
        put_scaler(session.scaler, told["scaler"])
    return LoadedCheckpoint.of(name, told)


def _broadcast(session: Session, step: float, *, has_moments: bool) -> None:
    """Weights and moments of the first process into all others."""
    model, optimizer, world = session.model, session.optimizer, session.world
    for parameter in model.parameters():
        world.broadcast(parameter.detach())
    if world.is_first:
        moments = moments_of(model, optimizer)
    else:
        moments = empty_moments(model, optimizer) if has_moments else {}
    for name in sorted(moments):
        world.broadcast(moments[name])
    if not world.is_first:
        put_moments(model, optimizer, moments, step)


def _read_shards(run: RunFolder, name: str, session: Session, step: float) -> None:
    """Weights, and moments if the optimizer had made a step, into this process's parts."""
    moments = empty_moments(session.model, session.optimizer) if step else {}
    read_parts(run.checkpoints / name, weights_of(session.model) | moments)
    put_moments(session.model, session.optimizer, moments, step)


def require_shared_folder(run: RunFolder, world: World) -> None:
    """Makes sure that all processes see the run folder that the first one made.

    Raises:
        CheckpointError: one does not, and could not write its part of a checkpoint.
    """
    found = world.all_gather(run.config_path.is_file())
    if not all(found):
        raise CheckpointError(
            f"rank {found.index(False)} does not see the run folder {run.path}",
            why="with --parallel=fsdp every process writes its part of a checkpoint into it",
            fix="an --out_dir on a disk that all machines share, or --parallel=ddp",
        )

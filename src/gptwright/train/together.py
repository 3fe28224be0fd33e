"""Checkpoints of several processes: one format to go on with any number of them, sharded or not.

Copies that are all alike (`ddp`, or one process) are written by the first process in the format of
`gptwright.train.checkpoint`, and read by it and spread over the network: only its machine needs the run
folder. Sharded ones (`fsdp`) are written by all, each its part, beside the one `state.json`; for that the
run folder must be on a disk that all machines share. Either is read under the other division and by one
process.
"""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from gptwright.errors import CheckpointError
from gptwright.files import disk_full_as_error
from gptwright.record.run import RunFolder, checkpoint_name
from gptwright.train.checkpoint import (
    LoadedCheckpoint,
    TrainState,
    empty_moments,
    file_identity,
    fixed_settings,
    load_checkpoint,
    moments_of,
    optimizer_step,
    payload_of,
    publish,
    put_moments,
    remove_partial,
    require_fitting,
    require_space,
    save_checkpoint,
    verified_payload,
    weights_of,
)
from gptwright.train.distributed import World
from gptwright.train.parts import read_parts, write_parts
from gptwright.train.session import Session


def save_together(run: RunFolder, session: Session, state: TrainState, *, metrics_bytes: int) -> str:
    """Writes a checkpoint of all processes, which call it together; returns its name.

    Args:
        run: where it goes.
        session: what is trained.
        state: where the run is.
        metrics_bytes: how long the metrics file is, in the first process.

    Raises:
        DiskFullError: there is no room; nothing half-written is left, and older checkpoints stay.
        PeerFailedError: another process could not write.
    """
    fixed = fixed_settings(session.config, session.vocab_size)
    if session.replica.sharded:
        return _save_parts(run, session, state, fixed, metrics_bytes)
    if not session.world.is_first:
        return checkpoint_name(state.step)
    return save_checkpoint(
        run,
        state=state,
        model=session.model,
        optimizer=session.optimizer,
        scaler=session.scaler,
        fixed=fixed,
        dataset_fingerprint=session.dataset.fingerprint,
        metrics_bytes=metrics_bytes,
    )


def _save_parts(
    run: RunFolder, session: Session, state: TrainState, fixed: Mapping[str, Any], metrics_bytes: int
) -> str:
    world, name = session.world, checkpoint_name(state.step)
    beside = run.checkpoints / f".{name}.partial"
    tensors = weights_of(session.model) | moments_of(session.model, session.optimizer)

    def begin() -> None:
        require_space(run.checkpoints, sum(t.numel() * t.element_size() for t in tensors.values()))
        beside.mkdir(exist_ok=True)

    def end() -> None:
        payload = payload_of(
            state=state,
            optimizer=session.optimizer,
            scaler=session.scaler,
            fixed=fixed,
            dataset_fingerprint=session.dataset.fingerprint,
            metrics_bytes=metrics_bytes,
        )
        publish(run, beside, payload | {"files": {k: v for part in parts for k, v in part.items()}})

    try:
        with disk_full_as_error(run.checkpoints):
            world.from_first(begin)
            written = write_parts(beside, tensors, rank=world.rank)
            parts = world.gathered({file.name: file_identity(file) for file in written})
            world.from_first(end)
    except BaseException:
        remove_partial(beside)
        raise
    return name


def load_together(run: RunFolder, name: str, session: Session) -> LoadedCheckpoint:
    """Puts a checkpoint into the model and optimizer of every process, which call it together.

    Raises:
        CheckpointError: it is damaged, or config or dataset have changed.
        PeerFailedError: the first process found that.
    """
    world = session.world
    fixed = fixed_settings(session.config, session.vocab_size)
    if session.replica.sharded:
        payload = world.from_first(lambda: verified_payload(run, name))
        require_fitting(run, name, payload, fixed=fixed, dataset_fingerprint=session.dataset.fingerprint)
        _read_shards(run.checkpoints / name, session, payload["optimizer_step"])
        if payload["scaler"]:
            session.scaler.load_state_dict(payload["scaler"])
        return LoadedCheckpoint.of(name, payload)

    def load() -> dict[str, Any]:
        loaded = load_checkpoint(
            run,
            name,
            model=session.model,
            optimizer=session.optimizer,
            scaler=session.scaler,
            fixed=fixed,
            dataset_fingerprint=session.dataset.fingerprint,
        )
        return asdict(loaded) | {
            "optimizer_step": optimizer_step(session.optimizer),
            "scaler": session.scaler.state_dict(),
        }

    loaded = world.from_first(load)
    if world.size > 1:
        _spread(session, loaded["optimizer_step"])
        if loaded["scaler"]:
            session.scaler.load_state_dict(loaded["scaler"])
    return LoadedCheckpoint(
        name=name, state=TrainState(**loaded["state"]), metrics_bytes=loaded["metrics_bytes"]
    )


def _spread(session: Session, step: float) -> None:
    """Weights and moments of the first process into all others."""
    model, world = session.model, session.world
    with torch.no_grad():
        for parameter in model.parameters():
            world.spread(parameter)
    if not step:
        return
    moments = (
        moments_of(model, session.optimizer)
        if world.is_first
        else empty_moments(session.model, session.optimizer)
    )
    for name in sorted(moments):
        world.spread(moments[name])
    if not world.is_first:
        put_moments(model, session.optimizer, moments, step)


def _read_shards(folder: Path, session: Session, step: float) -> None:
    """Weights, and moments if the optimizer had made a step, into this process's parts."""
    moments = empty_moments(session.model, session.optimizer) if step else {}
    read_parts(folder, weights_of(session.model) | moments, alone=False)
    put_moments(session.model, session.optimizer, moments, step)


def require_shared_folder(run: RunFolder, world: World) -> None:
    """Makes sure that all processes see the run folder that the first one made.

    Raises:
        CheckpointError: one does not, and could not write its part of a checkpoint.
    """
    found = world.gathered(run.config_path.is_file())
    if not all(found):
        raise CheckpointError(
            f"rank {found.index(False)} does not see the run folder {run.path}",
            why="with --parallel=fsdp every process writes its part of a checkpoint into it",
            fix="an --out_dir on a disk that all machines share, or --parallel=ddp",
        )

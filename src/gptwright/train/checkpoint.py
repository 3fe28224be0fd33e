"""Checkpoints: all that is needed to go on bit for bit, in files that hold no code.

    checkpoints/step-00000250/
      model.safetensors      the weights, by nanoGPT's names, float32
      optimizer.safetensors  the moments of each: AdamW's two, or Muon's one
      state.json             step, data position, best loss, scaler, fingerprints, the files' sha256

Data order, dropout and learning rate are pure functions of (seed, step), so the step is all of the random
state and of the schedule. A sharded model's tensors lie in one file a process instead
(`gptwright.train.parts`). A checkpoint is written beside, flushed and renamed; older ones are removed only
after that, so a crash at any moment leaves a whole one. Reading verifies every byte and never unpickles.
"""

import copy
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from gptwright import units
from gptwright.config.schema import TrainConfig
from gptwright.errors import CheckpointError, DiskFullError
from gptwright.files import disk_full_as_error, replace_bytes, sync_file
from gptwright.optim.optimizers import Optimizer
from gptwright.record.run import RunFolder, checkpoint_name
from gptwright.train.seal import SCHEMA, TENSOR_FILES, file_identity, sealed, state_of, verified_payload
from gptwright.train.state import TrainState
from gptwright.train.tensors import (
    moment_shapes,
    moments_of,
    optimizer_step,
    put_moments,
    put_weights,
    require_shapes,
    saved_tensors,
    weights_of,
)

# Settings that decide the weights' shapes or which text a step sees; a run cannot change them midway.
FIXED_SETTINGS = (
    "n_layer", "n_head", "n_embd", "block_size", "bias", "tie_weights", "rope_base", "optimizer", "seed",
    "sampling",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpointed:
    """What a checkpoint is taken of, and put back into.

    Attributes:
        model: its weights.
        optimizer: its moments and its count of updates.
        scaler: of float16 gradients; its scale.
        fixed: settings that must be the same when it is read, as `fixed_settings` gives them.
        dataset_fingerprint: of the data, likewise; empty where an imported model came without any.
    """

    model: nn.Module
    optimizer: Optimizer
    scaler: torch.amp.GradScaler
    fixed: Mapping[str, Any]
    dataset_fingerprint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointInfo:
    """What else a checkpoint remembers.

    Attributes:
        metrics_bytes: how long the metrics file is now, flushed.
        for_good: whether it outlives all newer ones.
        planned: whether it was due; False for one that a stop asked for.
    """

    metrics_bytes: int
    for_good: bool = False
    planned: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """All that a checkpoint holds, in main memory and no longer changed by the training.

    Attributes:
        state: where the run is.
        tensors: by file, then by name.
        payload: the rest of state.json.
    """

    state: TrainState
    tensors: Mapping[str, Mapping[str, Tensor]]
    payload: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedCheckpoint:
    """A verified checkpoint's state, and how long the metrics file was when it was written."""

    name: str
    state: TrainState
    metrics_bytes: int

    @classmethod
    def of(cls, name: str, payload: Mapping[str, Any]) -> "LoadedCheckpoint":
        """What a verified state.json says."""
        return cls(name=name, state=state_of(payload), metrics_bytes=payload["metrics_bytes"])


def fixed_settings(config: TrainConfig, vocab_size: int) -> dict[str, Any]:
    """What must be the same on resume, the sequences of a step included."""
    values = {name: getattr(config, name) for name in FIXED_SETTINGS} | asdict(config.ingredients)
    return values | {"vocab_size": vocab_size, "sequences_per_step": config.sequences_per_step}


def take_snapshot(
    state: TrainState, of: Checkpointed, info: CheckpointInfo, *, copied: bool = True
) -> Snapshot:
    """What a checkpoint will hold.

    Args:
        state: where the run is.
        of: what it is taken of.
        info: what else it remembers.
        copied: False shares the memory of tensors that are in main memory already, for a snapshot that is
            written before the next step.
    """
    weights = {name: _taken(tensor, copied) for name, tensor in weights_of(of.model).items()}
    moments = {name: _taken(tensor, copied) for name, tensor in moments_of(of.model, of.optimizer).items()}
    tensors = dict(zip(TENSOR_FILES, (weights, moments), strict=True))
    return Snapshot(state=copy.deepcopy(state), tensors=tensors, payload=payload_of(state, of, info))


def payload_of(state: TrainState, of: Checkpointed, info: CheckpointInfo) -> dict[str, Any]:
    """What state.json holds beside the identities of the files; the arguments are `take_snapshot`'s."""
    payload = {
        "schema": SCHEMA,
        "state": asdict(state),
        "optimizer_step": optimizer_step(of.optimizer),
        "scaler": of.scaler.state_dict(),
        "fixed": dict(of.fixed),
        "dataset_fingerprint": of.dataset_fingerprint,
        **asdict(info),
    }
    return copy.deepcopy(payload)


def write_checkpoint(run: RunFolder, snapshot: Snapshot) -> str:
    """Writes a checkpoint and makes `last` point to it; returns its name.

    Raises:
        DiskFullError: there is no room; nothing half-written is left, and older checkpoints stay.
    """
    name = checkpoint_name(snapshot.state.step)
    beside = run.checkpoints / f".{name}.partial"
    require_space(run.checkpoints, sum(t.nbytes for part in snapshot.tensors.values() for t in part.values()))
    try:
        with disk_full_as_error(run.checkpoints):
            beside.mkdir(exist_ok=True)
            for file, content in snapshot.tensors.items():
                save_file(dict(content), beside / file)
                sync_file(beside / file)
            files = {file: file_identity(beside / file) for file in TENSOR_FILES}
            publish(run, beside, {**snapshot.payload, "files": files})
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        raise
    return name


def publish(run: RunFolder, beside: Path, payload: Mapping[str, Any]) -> None:
    """Makes a checkpoint of a folder whose tensors are written: seals it, renames it, points to it."""
    name = checkpoint_name(payload["state"]["step"])
    replace_bytes(beside / "state.json", sealed(payload))
    run.put_checkpoint(beside, name)
    run.point("last", name)


def load_checkpoint(
    run: RunFolder, name: str, into: Checkpointed, *, payload: Mapping[str, Any] | None = None
) -> LoadedCheckpoint:
    """Verifies a checkpoint and puts it into model, optimizer and scaler.

    Args:
        run: the run.
        name: the checkpoint's name.
        into: gets it, and says what must be the same as when it was written.
        payload: its contents, where they have been verified just now.

    Raises:
        CheckpointError: it is damaged (the one before is offered), or config or dataset have changed.
    """
    folder = run.checkpoints / name
    payload = verified_payload(run, name) if payload is None else payload
    require_fitting(folder, payload, into)
    weights, moments = saved_tensors(folder)
    put_weights(into.model, weights, folder)
    if moments:
        require_shapes(folder, moments, moment_shapes(into.model, into.optimizer))
    put_moments(into.model, into.optimizer, moments, payload["optimizer_step"])
    put_scaler(into.scaler, payload["scaler"])
    return LoadedCheckpoint.of(name, payload)


def put_scaler(scaler: torch.amp.GradScaler, kept: Mapping[str, Any]) -> None:
    """Gives a float16 scaler the scale that it had; a run in another dtype has none to give or to take."""
    if kept and scaler.is_enabled():
        scaler.load_state_dict(dict(kept))


def require_fitting(folder: Path, payload: Mapping[str, Any], into: Checkpointed) -> None:
    """Makes sure that a checkpoint belongs to these settings and this dataset.

    Raises:
        CheckpointError: it does not.
    """
    # First, because another dataset brings another vocabulary, which would read like a setting. An imported
    # checkpoint may come without a dataset; the next one is written with what it goes on with.
    if payload["dataset_fingerprint"] not in ("", into.dataset_fingerprint):
        raise CheckpointError(
            f"the dataset has changed since {folder} was written",
            why="the steps to come would not see the text that they would have seen",
            fix="put the dataset back as it was, or start a new run on the new one",
        )
    _require_same(folder.name, payload["fixed"], into.fixed)


def require_space(folder: Path, tensor_bytes: int) -> None:
    """Makes sure that a checkpoint of so many bytes fits.

    Raises:
        DiskFullError: it does not.
    """
    free = shutil.disk_usage(folder).free
    if free < tensor_bytes:
        raise DiskFullError(
            f"a checkpoint needs {units.size(tensor_bytes)} and the disk of {folder} has"
            f" {units.size(free)} free",
            why="nothing was written; the checkpoints before are whole",
            fix="free some space there and give the same command again, or `gptwright resume` the run if it"
            " had begun",
        )


def _require_same(name: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    changed = [key for key in now if before.get(key) != now[key]]
    if changed:
        raise CheckpointError(
            f"settings differ from checkpoint {name}: "
            + ", ".join(f"{key} was {before.get(key)} and is {now[key]}" for key in changed),
            why="they fix the shapes of the weights or the order of the data",
            fix="give the old values (`gptwright resume RUN` has them), or start a new run with another"
            " --out_dir",
        )


def _taken(tensor: Tensor, copied: bool) -> Tensor:
    """A tensor in main memory; what is there already is shared unless it is to be copied."""
    here = tensor.cpu().contiguous()
    return here.clone() if copied and here.data_ptr() == tensor.data_ptr() else here

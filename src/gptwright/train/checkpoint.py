"""Checkpoints: all that is needed to go on bit for bit, in files that hold no code.

    checkpoints/step-00000250/
      model.safetensors      the weights, by nanoGPT's names, float32
      optimizer.safetensors  the moments of each: AdamW's two, or Muon's one
      state.json             step, data position, best loss, scaler, fingerprints, the files' sha256

Data order, dropout and learning rate are pure functions of (seed, step), so the step is all of the random
state and of the schedule. A checkpoint is written beside, flushed and renamed; older ones are removed only
after that, so a crash at any moment leaves a whole one. Reading verifies every byte and never unpickles.
"""

import copy
import shutil
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from gptwright import units
from gptwright.config.schema import TrainConfig
from gptwright.errors import CheckpointError, DiskFullError
from gptwright.files import disk_full_as_error, replace_bytes, sync_file
from gptwright.optim.optimizers import Optimizer
from gptwright.record.run import RunFolder, checkpoint_name
from gptwright.train.seal import SCHEMA, TENSOR_FILES, file_identity, sealed, state_of, verified_payload
from gptwright.train.state import TrainState

# By the kind of a parameter's group.
MOMENTS = {"adamw": ("exp_avg", "exp_avg_sq"), "muon": ("momentum",)}

# Settings that decide the weights' shapes or which text a step sees; a run cannot change them midway.
FIXED_SETTINGS = (
    "n_layer", "n_head", "n_embd", "block_size", "bias", "tie_weights", "rope_base", "optimizer", "seed",
    "sampling",
)  # fmt: skip


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


def fixed_settings(config: TrainConfig, vocab_size: int) -> dict[str, Any]:
    """What must be the same on resume, the sequences of a step included."""
    values = {name: getattr(config, name) for name in FIXED_SETTINGS} | asdict(config.ingredients)
    return values | {"vocab_size": vocab_size, "sequences_per_step": config.sequences_per_step}


def take_snapshot(
    state: TrainState,
    *,
    model: nn.Module,
    optimizer: Optimizer,
    scaler: torch.amp.GradScaler,
    fixed: Mapping[str, Any],
    dataset_fingerprint: str,
    metrics_bytes: int,
    for_good: bool = False,
    planned: bool = True,
    copied: bool = True,
) -> Snapshot:
    """What a checkpoint will hold.

    Args:
        state: where the run is.
        model: its weights are taken.
        optimizer: its moments are taken.
        scaler: of float16 gradients.
        fixed: settings that a resumed run must have too.
        dataset_fingerprint: of the data that it must find.
        metrics_bytes: how long the metrics file is now, flushed.
        for_good: whether the checkpoint outlives all newer ones.
        planned: whether it was due; False for one that a stop asked for.
        copied: False shares the memory of tensors that are in main memory already, for a snapshot that is
            written before the next step.
    """
    weights = {name: _taken(p.detach(), copied) for name, p in model.named_parameters()}
    moments = {
        f"{name}.{moment}": _taken(value, copied)
        for name, p in model.named_parameters()
        for moment, value in optimizer.state.get(p, {}).items()
        if moment != "step"
    }
    payload = {
        "schema": SCHEMA,
        "state": asdict(state),
        "optimizer_step": _optimizer_step(optimizer),
        "scaler": scaler.state_dict(),
        "fixed": dict(fixed),
        "dataset_fingerprint": dataset_fingerprint,
        "metrics_bytes": metrics_bytes,
        "for_good": for_good,
        "planned": planned,
    }
    tensors = dict(zip(TENSOR_FILES, (weights, moments), strict=True))
    return Snapshot(state=copy.deepcopy(state), tensors=tensors, payload=copy.deepcopy(payload))


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
            replace_bytes(beside / "state.json", sealed({**snapshot.payload, "files": files}))
            run.put_checkpoint(beside, name)
            run.point("last", name)
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        raise
    return name


def load_checkpoint(
    run: RunFolder,
    name: str,
    *,
    model: nn.Module,
    optimizer: Optimizer,
    scaler: torch.amp.GradScaler,
    fixed: Mapping[str, Any],
    dataset_fingerprint: str,
    payload: Mapping[str, Any] | None = None,
) -> LoadedCheckpoint:
    """Verifies a checkpoint and puts it into model, optimizer and scaler.

    Args:
        run: the run.
        name: the checkpoint's name.
        model: gets the weights.
        optimizer: gets the moments.
        scaler: gets its scale.
        fixed: what must be the same as when it was written.
        dataset_fingerprint: likewise.
        payload: its contents, where they have been verified just now.

    Raises:
        CheckpointError: it is damaged (the one before is offered), or config or dataset have changed.
    """
    payload = verified_payload(run, name) if payload is None else payload
    _require_same(name, payload["fixed"], fixed)
    # An imported checkpoint may come without a dataset; the next one is written with what it goes on with.
    if payload["dataset_fingerprint"] not in ("", dataset_fingerprint):
        raise CheckpointError(
            f"the dataset has changed since {run.checkpoints / name} was written",
            why="the steps to come would not see the text that they would have seen",
            fix="put the dataset back as it was, or start a new run on the new one",
        )
    folder = run.checkpoints / name
    load_weights(model, folder)
    moments = _tensors(folder / TENSOR_FILES[1])
    if moments:
        _require_shapes(folder / TENSOR_FILES[1], moments, _moments_of(model, optimizer))
        _load_moments(model, optimizer, moments, payload["optimizer_step"])
    if payload["scaler"] and scaler.is_enabled():
        scaler.load_state_dict(payload["scaler"])
    return LoadedCheckpoint(name=name, state=state_of(payload), metrics_bytes=payload["metrics_bytes"])


def load_weights(model: nn.Module, folder: Path) -> None:
    """Copies a verified checkpoint's weights into a model, wherever that is.

    Raises:
        CheckpointError: they are another model's.
    """
    weights = _tensors(folder / TENSOR_FILES[0])
    _require_shapes(folder / TENSOR_FILES[0], weights, dict(model.named_parameters()))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(weights[name])


def _tensors(path: Path) -> dict[str, Tensor]:
    try:
        tensors: dict[str, Tensor] = load_file(path)
    except (SafetensorError, ValueError, OSError, RuntimeError) as error:
        raise CheckpointError(
            f"{path} holds no tensors: {error}",
            why="its hash is right, so it was written so",
            fix="take another checkpoint with --checkpoint=NAME",
        ) from None
    return tensors


def _require_shapes(path: Path, tensors: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> None:
    wrong = [
        name
        for name in {*tensors, *wanted}
        if name not in tensors
        or name not in wanted
        or tensors[name].shape != wanted[name].shape
        or not tensors[name].is_floating_point()
    ]
    if wrong:
        raise CheckpointError(
            f"{path} does not fit this model: {', '.join(sorted(wrong)[:3])}"
            + (f" and {len(wrong) - 3} more" if len(wrong) > 3 else ""),
            why="tensors are missing, of another shape, or of another model",
            fix="take another checkpoint with --checkpoint=NAME, or the run's own settings",
        )


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
            fix="give the old values, or start a new run in another --out_dir",
        )


def _taken(tensor: Tensor, copied: bool) -> Tensor:
    """A tensor in main memory; what is there already is shared unless it is to be copied."""
    here = tensor.cpu().contiguous()
    return here.clone() if copied and here.data_ptr() == tensor.data_ptr() else here


def _moments_of(model: nn.Module, optimizer: Optimizer) -> dict[str, Tensor]:
    """What the optimizer keeps of each parameter, by the parameter's name and its own; its shape is the
    parameter's."""
    names = {parameter: name for name, parameter in model.named_parameters()}
    return {
        f"{names[parameter]}.{moment}": parameter
        for group in optimizer.param_groups
        for parameter in group["params"]
        for moment in MOMENTS[group["kind"]]
    }


def _optimizer_step(optimizer: Optimizer) -> float:
    """Updates that the optimizer has made; fewer than the run's where a float16 step was skipped."""
    return next((float(state["step"]) for state in optimizer.state.values()), 0.0)


def _load_moments(model: nn.Module, optimizer: Optimizer, moments: Mapping[str, Tensor], step: float) -> None:
    kept: dict[str, dict[str, Tensor]] = defaultdict(dict)
    for key, value in moments.items():
        name, _, moment = key.rpartition(".")
        kept[name][moment] = value
    parameters = dict(model.named_parameters())
    for name, values in kept.items():
        optimizer.restore(parameters[name], values, step)

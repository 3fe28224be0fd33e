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
from gptwright.train.parts import read_whole
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

    @classmethod
    def of(cls, name: str, payload: Mapping[str, Any]) -> "LoadedCheckpoint":
        """What a verified state.json says."""
        return cls(name=name, state=state_of(payload), metrics_bytes=payload["metrics_bytes"])


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
    weights = {name: _taken(tensor, copied) for name, tensor in weights_of(model).items()}
    moments = {name: _taken(tensor, copied) for name, tensor in moments_of(model, optimizer).items()}
    payload = payload_of(
        state,
        optimizer=optimizer,
        scaler=scaler,
        fixed=fixed,
        dataset_fingerprint=dataset_fingerprint,
        metrics_bytes=metrics_bytes,
        for_good=for_good,
        planned=planned,
    )
    tensors = dict(zip(TENSOR_FILES, (weights, moments), strict=True))
    return Snapshot(state=copy.deepcopy(state), tensors=tensors, payload=payload)


def payload_of(
    state: TrainState,
    *,
    optimizer: Optimizer,
    scaler: torch.amp.GradScaler,
    fixed: Mapping[str, Any],
    dataset_fingerprint: str,
    metrics_bytes: int,
    for_good: bool,
    planned: bool,
) -> dict[str, Any]:
    """What state.json holds beside the identities of the files; the arguments are `take_snapshot`'s."""
    payload = {
        "schema": SCHEMA,
        "state": asdict(state),
        "optimizer_step": optimizer_step(optimizer),
        "scaler": scaler.state_dict(),
        "fixed": dict(fixed),
        "dataset_fingerprint": dataset_fingerprint,
        "metrics_bytes": metrics_bytes,
        "for_good": for_good,
        "planned": planned,
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
    require_fitting(run, name, payload, fixed=fixed, dataset_fingerprint=dataset_fingerprint)
    weights, moments = saved_tensors(run.checkpoints / name)
    _put_weights(model, weights, run.checkpoints / name)
    if moments:
        _require_shapes(run.checkpoints / name, moments, _moment_shapes(model, optimizer))
    put_moments(model, optimizer, moments, payload["optimizer_step"])
    if payload["scaler"] and scaler.is_enabled():
        scaler.load_state_dict(payload["scaler"])
    return LoadedCheckpoint.of(name, payload)


def require_fitting(
    run: RunFolder,
    name: str,
    payload: Mapping[str, Any],
    *,
    fixed: Mapping[str, Any],
    dataset_fingerprint: str,
) -> None:
    """Makes sure that a checkpoint belongs to these settings and this dataset.

    Raises:
        CheckpointError: it does not.
    """
    _require_same(name, payload["fixed"], fixed)
    # An imported checkpoint may come without a dataset; the next one is written with what it goes on with.
    if payload["dataset_fingerprint"] not in ("", dataset_fingerprint):
        raise CheckpointError(
            f"the dataset has changed since {run.checkpoints / name} was written",
            why="the steps to come would not see the text that they would have seen",
            fix="put the dataset back as it was, or start a new run on the new one",
        )


def load_weights(model: nn.Module, folder: Path) -> None:
    """Copies a verified checkpoint's weights into a model, wherever that is.

    Raises:
        CheckpointError: they are another model's.
    """
    _put_weights(model, saved_tensors(folder, moments=False)[0], folder)


def _put_weights(model: nn.Module, weights: Mapping[str, Tensor], folder: Path) -> None:
    _require_shapes(folder, weights, dict(model.named_parameters()))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(weights[name])


def saved_tensors(folder: Path, *, moments: bool = True) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Weights and moments of a verified checkpoint, whole, however many processes wrote it.

    Args:
        folder: the checkpoint.
        moments: whether they are wanted; else there are none in the answer.

    Raises:
        CheckpointError: the files hold no tensors.
    """
    try:
        if (folder / TENSOR_FILES[0]).is_file():
            weights: dict[str, Tensor] = load_file(folder / TENSOR_FILES[0])
            return weights, load_file(folder / TENSOR_FILES[1]) if moments else {}
        return _divided(read_whole(folder, lambda name: moments or not is_moment(name)))
    except (SafetensorError, ValueError, OSError, RuntimeError) as error:
        raise CheckpointError(
            f"{folder} holds no tensors: {error}",
            why="its hash is right, so it was written so",
            fix="take another checkpoint with --checkpoint=NAME",
        ) from None


def is_moment(name: str) -> bool:
    """Whether a saved tensor is a moment, and not a weight."""
    return name.rpartition(".")[2] in {moment for kind in MOMENTS.values() for moment in kind}


def _divided(tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Weights and moments apart."""
    weights = {name: tensor for name, tensor in tensors.items() if not is_moment(name)}
    return weights, {name: tensor for name, tensor in tensors.items() if name not in weights}


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


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """Named parameters, in the memory where they are; a tied matrix appears once."""
    return {name: p.detach() for name, p in model.named_parameters()}


def moments_of(model: nn.Module, optimizer: Optimizer) -> dict[str, Tensor]:
    """The moments by parameter, in the memory where they are; none before the first step."""
    return {
        f"{name}.{moment}": value
        for name, p in model.named_parameters()
        for moment, value in optimizer.state.get(p, {}).items()
        if moment != "step"
    }


def empty_moments(model: nn.Module, optimizer: Optimizer) -> dict[str, Tensor]:
    """Zeros in place of every moment, each where its parameter is and divided as it is."""
    shapes = _moment_shapes(model, optimizer)
    return {name: torch.zeros_like(parameter, requires_grad=False) for name, parameter in shapes.items()}


def _taken(tensor: Tensor, copied: bool) -> Tensor:
    """A tensor in main memory; what is there already is shared unless it is to be copied."""
    here = tensor.cpu().contiguous()
    return here.clone() if copied and here.data_ptr() == tensor.data_ptr() else here


def _moment_shapes(model: nn.Module, optimizer: Optimizer) -> dict[str, Tensor]:
    """What the optimizer keeps of each parameter, by the parameter's name and its own; its shape is the
    parameter's."""
    names = {parameter: name for name, parameter in model.named_parameters()}
    return {
        f"{names[parameter]}.{moment}": parameter
        for group in optimizer.param_groups
        for parameter in group["params"]
        for moment in MOMENTS[group["kind"]]
    }


def optimizer_step(optimizer: Optimizer) -> float:
    """Updates that the optimizer has made; fewer than the run's where a float16 step was skipped."""
    return next((float(state["step"]) for state in optimizer.state.values()), 0.0)


def put_moments(model: nn.Module, optimizer: Optimizer, moments: Mapping[str, Tensor], step: float) -> None:
    """Gives the optimizer its moments and its count of updates; none before its first update."""
    optimizer.state.clear()
    kept: dict[str, dict[str, Tensor]] = defaultdict(dict)
    for key, value in moments.items():
        name, _, moment = key.rpartition(".")
        kept[name][moment] = value
    parameters = dict(model.named_parameters())
    for name, values in kept.items():
        optimizer.restore(parameters[name], values, step)

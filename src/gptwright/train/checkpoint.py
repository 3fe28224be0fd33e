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

import hashlib
import json
import shutil
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from gptwright import units
from gptwright.config.schema import TrainConfig
from gptwright.errors import CheckpointError, DiskFullError
from gptwright.files import disk_full_as_error, replace_bytes, sync_file, sync_folder
from gptwright.optim.optimizers import Optimizer
from gptwright.record.run import RunFolder, checkpoint_name
from gptwright.train.parts import read_parts

SCHEMA = "gptwright.checkpoint/1"
TENSOR_FILES = ("model.safetensors", "optimizer.safetensors")
MOMENTS = {"adamw": ("exp_avg", "exp_avg_sq"), "muon": ("momentum",)}

# Settings that decide the weights' shapes or which text a step sees; a run cannot change them midway.
FIXED_SETTINGS = (
    "n_layer", "n_head", "n_embd", "block_size", "bias", "tie_weights", "rope_base", "optimizer", "seed",
    "sampling",
)  # fmt: skip


@dataclass(slots=True, kw_only=True)
class TrainState:
    """What changes while a run trains, besides weights and optimizer.

    Attributes:
        step: updates done, which is also the data position.
        best_val_loss: lowest validation loss so far; None before the first evaluation.
        best_step: where it was.
        last_eval_step: the latest step that was evaluated; None before the first.
        pending_losses: losses of steps since the last line of metrics.
        pending_seconds: training time of those steps.
    """

    step: int = 0
    best_val_loss: float | None = None
    best_step: int | None = None
    last_eval_step: int | None = None
    pending_losses: list[float] = field(default_factory=list)
    pending_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedCheckpoint:
    """A verified checkpoint's state, and how long the metrics file was when it was written."""

    name: str
    state: TrainState
    metrics_bytes: int

    @classmethod
    def of(cls, name: str, payload: Mapping[str, Any]) -> "LoadedCheckpoint":
        """What a verified state.json says."""
        return cls(name=name, state=TrainState(**payload["state"]), metrics_bytes=payload["metrics_bytes"])


def fixed_settings(config: TrainConfig, vocab_size: int) -> dict[str, Any]:
    """What must be the same on resume, the sequences of a step included."""
    values = {name: getattr(config, name) for name in FIXED_SETTINGS} | asdict(config.ingredients)
    return values | {"vocab_size": vocab_size, "sequences_per_step": config.sequences_per_step}


def save_checkpoint(
    run: RunFolder,
    *,
    state: TrainState,
    model: nn.Module,
    optimizer: Optimizer,
    scaler: torch.amp.GradScaler,
    fixed: Mapping[str, Any],
    dataset_fingerprint: str,
    metrics_bytes: int,
) -> str:
    """Writes a checkpoint and makes `last` point to it; returns its name.

    Raises:
        DiskFullError: there is no room; nothing half-written is left, and older checkpoints stay.
    """
    name = checkpoint_name(state.step)
    beside = run.checkpoints / f".{name}.partial"
    both = (_in_main_memory(weights_of(model)), _in_main_memory(moments_of(model, optimizer)))
    tensors = dict(zip(TENSOR_FILES, both, strict=True))
    require_space(run.checkpoints, sum(t.nbytes for part in tensors.values() for t in part.values()))
    try:
        with disk_full_as_error(run.checkpoints):
            beside.mkdir(exist_ok=True)
            for file, content in tensors.items():
                save_file(content, beside / file)
                sync_file(beside / file)
            payload = payload_of(
                state=state,
                optimizer=optimizer,
                scaler=scaler,
                fixed=fixed,
                dataset_fingerprint=dataset_fingerprint,
                metrics_bytes=metrics_bytes,
            )
            files = {file: file_identity(beside / file) for file in TENSOR_FILES}
            publish(run, beside, payload | {"files": files})
    except BaseException:
        remove_partial(beside)
        raise
    return name


def payload_of(
    *,
    state: TrainState,
    optimizer: Optimizer,
    scaler: torch.amp.GradScaler,
    fixed: Mapping[str, Any],
    dataset_fingerprint: str,
    metrics_bytes: int,
) -> dict[str, Any]:
    """What state.json holds beside the identities of the files."""
    return {
        "schema": SCHEMA,
        "state": asdict(state),
        "optimizer_step": optimizer_step(optimizer),
        "scaler": scaler.state_dict(),
        "fixed": dict(fixed),
        "dataset_fingerprint": dataset_fingerprint,
        "metrics_bytes": metrics_bytes,
    }


def publish(run: RunFolder, beside: Path, payload: Mapping[str, Any]) -> None:
    """Makes a checkpoint of a folder whose tensors are written: seals it, renames it, points to it."""
    name = checkpoint_name(payload["state"]["step"])
    final = run.checkpoints / name
    replace_bytes(beside / "state.json", _sealed(payload))
    if final.exists():
        run.remove_checkpoint(name)
    beside.rename(final)
    sync_folder(run.checkpoints)
    run.point("last", name)


def remove_partial(beside: Path) -> None:
    """Removes what was written of a checkpoint that will not be."""
    shutil.rmtree(beside, ignore_errors=True)


def prune_checkpoints(run: RunFolder, keep: int) -> None:
    """Removes all but the newest `keep` checkpoints and the best one."""
    for name in run.checkpoint_names()[:-keep]:
        if name != run.pointed("best"):
            run.remove_checkpoint(name)


def load_checkpoint(
    run: RunFolder,
    name: str,
    *,
    model: nn.Module,
    optimizer: Optimizer,
    scaler: torch.amp.GradScaler,
    fixed: Mapping[str, Any],
    dataset_fingerprint: str,
) -> LoadedCheckpoint:
    """Verifies a checkpoint and puts it into model, optimizer and scaler.

    Raises:
        CheckpointError: it is damaged (the one before is offered), or config or dataset have changed.
    """
    payload = verified_payload(run, name)
    require_fitting(run, name, payload, fixed=fixed, dataset_fingerprint=dataset_fingerprint)
    folder = run.checkpoints / name
    load_weights(model, folder)
    put_moments(model, optimizer, _read_moments(model, optimizer, folder, payload), payload["optimizer_step"])
    if payload["scaler"]:
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
    if payload["dataset_fingerprint"] != dataset_fingerprint:
        raise CheckpointError(
            f"the dataset has changed since {run.checkpoints / name} was written",
            why="the steps to come would not see the text that they would have seen",
            fix="put the dataset back as it was, or start a new run on the new one",
        )


def load_weights(model: nn.Module, folder: Path) -> None:
    """Copies a verified checkpoint's weights into a model, wherever that is."""
    if not (folder / TENSOR_FILES[0]).is_file():
        read_parts(folder, weights_of(model), alone=True)
        return
    weights = load_file(folder / TENSOR_FILES[0])
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(weights[name])


def verified_payload(run: RunFolder, name: str) -> dict[str, Any]:
    """The contents of a checkpoint's state.json, once every file has its recorded sha256.

    Raises:
        CheckpointError: something does not; the newest whole checkpoint before it is named.
    """
    folder = run.checkpoints / name
    damage = _damage(folder)
    if damage is None:
        return _unsealed(folder)
    before = [other for other in run.checkpoint_names() if other < name]
    whole = next((other for other in reversed(before) if _damage(run.checkpoints / other) is None), None)
    raise CheckpointError(
        f"checkpoint {folder} is damaged: {damage}",
        why="its bytes are not those that were written, so nothing of it can be trusted",
        fix=f"`gptwright resume {run.path} --checkpoint={whole}` goes on from the one before, which is whole"
        if whole
        else "no earlier checkpoint is whole; start the run anew in another folder",
    )


def _damage(folder: Path) -> str | None:
    """What is wrong with a checkpoint's files, or None."""
    try:
        payload = _unsealed(folder)
        if payload.get("schema") != SCHEMA:
            return f"state.json has schema {payload.get('schema')!r}, not {SCHEMA!r}"
        for file, expected in payload["files"].items():
            if not (folder / file).is_file():
                return f"{file} is missing"
            if file_identity(folder / file) != expected:
                return f"{file} has another sha256 or size than state.json records"
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        return f"state.json: {error}"
    return None


def _sealed(payload: Mapping[str, Any]) -> bytes:
    text = json.dumps(payload, sort_keys=True)
    seal = hashlib.sha256(text.encode("utf-8")).hexdigest()
    return json.dumps({"sha256": seal, "checkpoint": payload}, sort_keys=True, indent=1).encode("utf-8")


def _unsealed(folder: Path) -> dict[str, Any]:
    content = json.loads((folder / "state.json").read_bytes())
    payload = content["checkpoint"]
    text = json.dumps(payload, sort_keys=True)
    if hashlib.sha256(text.encode("utf-8")).hexdigest() != content["sha256"]:
        raise ValueError("its content is not what its sha256 says")
    return dict(payload)


def file_identity(path: Path) -> dict[str, Any]:
    """Size and sha256 of a file, as state.json records them."""
    with path.open("rb") as file:
        return {"bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


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
            fix="free some space there, then `gptwright resume` the run",
        )


def _require_same(name: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    changed = [key for key in before if before[key] != now[key]]
    if changed:
        raise CheckpointError(
            f"settings differ from checkpoint {name}: "
            + ", ".join(f"{key} was {before[key]} and is {now[key]}" for key in changed),
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


def _in_main_memory(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}


def optimizer_step(optimizer: Optimizer) -> float:
    """Updates that the optimizer has made; fewer than the run's where a float16 step was skipped."""
    return next((float(state["step"]) for state in optimizer.state.values()), 0.0)


def empty_moments(model: nn.Module, optimizer: Optimizer) -> dict[str, Tensor]:
    """Zeros in place of every moment, each where its parameter is and divided as it is."""
    names = {parameter: name for name, parameter in model.named_parameters()}
    return {
        f"{names[parameter]}.{moment}": torch.zeros_like(parameter, requires_grad=False)
        for group in optimizer.param_groups
        for parameter in group["params"]
        for moment in MOMENTS[group["kind"]]
    }


def _read_moments(
    model: nn.Module, optimizer: Optimizer, folder: Path, payload: Mapping[str, Any]
) -> dict[str, Tensor]:
    if TENSOR_FILES[1] in payload["files"]:
        return load_file(folder / TENSOR_FILES[1])
    if not payload["optimizer_step"]:
        return {}
    moments = empty_moments(model, optimizer)
    read_parts(folder, moments, alone=True)
    return moments


def put_moments(model: nn.Module, optimizer: Optimizer, moments: Mapping[str, Tensor], step: float) -> None:
    """Gives the optimizer its moments and its count of updates; none before its first step."""
    kept: dict[str, dict[str, Tensor]] = defaultdict(dict)
    for key, value in moments.items():
        name, _, moment = key.rpartition(".")
        kept[name][moment] = value
    parameters = dict(model.named_parameters())
    for name, values in kept.items():
        optimizer.restore(parameters[name], values, step)

"""Whether a checkpoint is what was written: hashes, and what state.json may say.

A hash tells a flipped bit from a whole file and protects from no one: whoever changes a checkpoint can make
its hashes too. So what state.json says is checked once more, field by field, before anything believes it;
names of files are fixed, so that none leads out of the folder.
"""

import hashlib
import json
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from gptwright.errors import CheckpointError, typed
from gptwright.record.run import RunFolder, checkpoint_name
from gptwright.train.state import TrainState

SCHEMA = "gptwright.checkpoint/1"
TENSOR_FILES = ("model.safetensors", "optimizer.safetensors")
# What each of several processes writes of a sharded model; see `gptwright.train.parts`.
SHARD = r"shard-\d{5}-model-\d{5}-of-\d{5}\.safetensors"


class _FileIdentity(BaseModel):
    """A file as it was written."""

    bytes: Annotated[int, Field(ge=0)]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class _Payload(BaseModel):
    """What state.json may hold: it is believed only after this, for whoever changed it can make its seal."""

    model_config = ConfigDict(allow_inf_nan=False)

    schema_: Literal["gptwright.checkpoint/1"] = Field(alias="schema")
    state: TrainState
    optimizer_step: Annotated[float, Field(ge=0.0, lt=2.0**53)]
    scaler: dict[str, float]
    fixed: dict[str, int | float | str | bool | None]
    dataset_fingerprint: str
    metrics_bytes: Annotated[int, Field(ge=0, lt=2**63)]
    for_good: bool = False
    planned: bool = True
    files: dict[str, _FileIdentity]


def state_of(payload: Mapping[str, Any]) -> TrainState:
    """The state that a verified checkpoint holds; an older version's lacks fields, which have defaults."""
    return TypeAdapter(TrainState).validate_python(payload["state"])


def verified_payload(run: RunFolder, name: str) -> dict[str, Any]:
    """The contents of a checkpoint's state.json, once every file has its recorded sha256.

    Raises:
        CheckpointError: something does not; the newest whole checkpoint before it is named.
    """
    folder = run.checkpoints / name
    damage = damage_of(folder)
    if damage is None:
        return unsealed(folder)
    before = [other for other in run.checkpoint_names() if other < name]
    whole = next((other for other in reversed(before) if damage_of(run.checkpoints / other) is None), None)
    raise CheckpointError(
        f"checkpoint {folder} is damaged: {damage}",
        why="its bytes are not those that were written, so nothing of it can be trusted",
        fix=f"`gptwright resume {typed(run.path)} --checkpoint={whole}` goes on from the one before, which is"
        " whole"
        if whole
        else "no earlier checkpoint is whole; start the run anew in another folder",
    )


def damage_of(folder: Path) -> str | None:
    """What is wrong with a checkpoint's files, or None."""
    try:
        payload = unsealed(folder)
        checked = _Payload.model_validate(payload)
        if not _are_known(checked.files) or checkpoint_name(checked.state.step) != folder.name:
            return "state.json is another checkpoint's"
        for file, expected in payload["files"].items():
            if not (folder / file).is_file():
                return f"{file} is missing"
            if file_identity(folder / file) != expected:
                return f"{file} has another sha256 or size than state.json records"
    except ValidationError as error:
        first = error.errors()[0]
        return f"state.json: {'.'.join(str(part) for part in first['loc'])}: {first['msg']}"
    except (OSError, ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        return f"state.json: {error}"
    return None


def _are_known(files: Collection[str]) -> bool:
    """Whether names are those of whole tensors' two files or of processes' parts, and no path elsewhere."""
    if set(files) == set(TENSOR_FILES):
        return True
    return bool(files) and all(re.fullmatch(SHARD, file, flags=re.ASCII) for file in files)


def sealed(payload: Mapping[str, Any]) -> bytes:
    """The bytes of state.json."""
    text = json.dumps(payload, sort_keys=True)
    seal = hashlib.sha256(text.encode("utf-8")).hexdigest()
    return json.dumps({"sha256": seal, "checkpoint": payload}, sort_keys=True, indent=1).encode("utf-8")


def unsealed(folder: Path) -> dict[str, Any]:
    """What state.json holds.

    Raises:
        ValueError: it is not what its own sha256 says.
    """
    content = json.loads((folder / "state.json").read_bytes())
    payload = content["checkpoint"]
    text = json.dumps(payload, sort_keys=True)
    if hashlib.sha256(text.encode("utf-8")).hexdigest() != content["sha256"]:
        raise ValueError("its content is not what its sha256 says")
    return dict(payload)


def file_identity(path: Path) -> dict[str, Any]:
    """Size and sha256 of a file."""
    with path.open("rb") as file:
        return {"bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}

"""Tensors of a sharded model in a checkpoint: each process writes its own part and reads what it needs.

torch.distributed.checkpoint plans who writes and who reads what, so that a checkpoint of one division can be
read under any other, and by one process without any. Its safetensors storage is used: its usual one keeps its
plan in a pickle, which would run code for whoever could change the file. Each process writes one file,
`shard-00001-model-00001-of-00001.safetensors` for rank 0, whose header says where its rows belong.

One process reads them by itself without that library (`read_whole`): to speak, to export, to go on alone.

Sources: torch.distributed.checkpoint's HuggingFaceStorageWriter and HuggingFaceStorageReader (torch 2.9).
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from gptwright.errors import CheckpointError
from gptwright.files import sync_file


def write_parts(folder: Path, tensors: Mapping[str, Tensor], *, rank: int) -> list[Path]:
    """Writes this process's parts of sharded tensors; all processes call it together.

    Args:
        folder: exists, and is the same one for all processes.
        tensors: by name, the same names in all processes.
        rank: this process.

    Returns:
        The files that this process wrote.
    """
    from torch.distributed.checkpoint.state_dict_saver import save

    writer = _storage().HuggingFaceStorageWriter(str(folder), save_distributed=True)
    save(dict(tensors), storage_writer=writer)
    # DCP numbers processes from 1.
    written = sorted(folder.glob(f"shard-{rank + 1:05d}-*.safetensors"))
    for file in written:
        sync_file(file)
    return written


def read_parts(folder: Path, tensors: Mapping[str, Tensor]) -> None:
    """Reads tensors into the parts that this process has of them; all processes call it together.

    Args:
        folder: safetensors files, whole ones or parts of any division.
        tensors: by name; filled in place.

    Raises:
        CheckpointError: they are not those of this model.
    """
    from torch.distributed.checkpoint.api import CheckpointException
    from torch.distributed.checkpoint.state_dict_loader import load

    try:
        load(dict(tensors), storage_reader=_storage().HuggingFaceStorageReader(str(folder)))
    except (CheckpointException, ValueError, KeyError) as error:
        raise CheckpointError(
            f"{folder} does not fit this model: {str(error).splitlines()[-1]}",
            why="tensors are missing, of another shape, or of another model",
            fix="take another checkpoint with --checkpoint=NAME, or the run's own settings",
        ) from None


def read_whole(folder: Path, wanted: Callable[[str], bool]) -> dict[str, Tensor]:
    """Whole tensors put together from the parts of all processes.

    Args:
        folder: the parts.
        wanted: which tensors, by name.

    Raises:
        ValueError: parts of a tensor are missing.
        SafetensorError: a file is none.
    """
    parts: dict[str, list[tuple[list[int], Tensor]]] = {}
    for path in sorted(folder.glob("shard-*.safetensors")):
        with safe_open(path, framework="pt") as file:
            places = json.loads((file.metadata() or {}).get("DCP_SHARDING_INFO", "{}"))
            for name in filter(wanted, file.keys()):
                part = file.get_tensor(name)
                begins = places.get(name, {}).get("saved_offsets", [0] * part.dim())
                parts.setdefault(name, []).append((begins, part))
    return {name: _joined(name, pieces) for name, pieces in parts.items()}


def _joined(name: str, pieces: list[tuple[list[int], Tensor]]) -> Tensor:
    ends = [
        [begin + length for begin, length in zip(begins, part.shape, strict=True)] for begins, part in pieces
    ]
    shape = [max(along) for along in zip(*ends, strict=True)]
    if sum(part.numel() for _, part in pieces) != torch.Size(shape).numel():
        raise ValueError(f"parts of {name} are missing")
    whole = torch.empty(shape, dtype=pieces[0][1].dtype)
    for (begins, part), after in zip(pieces, ends, strict=True):
        whole[tuple(slice(begin, end) for begin, end in zip(begins, after, strict=True))] = part
    return whole


def _storage() -> Any:
    """The library's storages; it is imported by what needs it, as one process never does."""
    import torch.distributed.checkpoint as dcp

    if not hasattr(dcp, "HuggingFaceStorageWriter"):
        raise CheckpointError(
            "this torch cannot keep sharded tensors in safetensors files",
            why="its own format for them is unpickled on reading",
            fix="torch 2.9 or newer, or --parallel=ddp",
        )
    return dcp

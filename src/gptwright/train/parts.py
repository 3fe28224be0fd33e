"""Tensors of a sharded model in a checkpoint: each process writes its own part and reads what it needs.

torch.distributed.checkpoint plans who writes and who reads what, so that a checkpoint of one division can be
read under any other, and by one process without any. Its safetensors storage is used: its usual one keeps its
plan in a pickle, which would run code for whoever could change the file. Each process writes one file,
`shard-00001-model-00001-of-00001.safetensors` for rank 0, whose header says where its rows belong.

Sources: torch.distributed.checkpoint's HuggingFaceStorageWriter and HuggingFaceStorageReader (torch 2.9).
"""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch.distributed.checkpoint as dcp
from torch import Tensor
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

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
    writer = _storage().HuggingFaceStorageWriter(str(folder), save_distributed=True)
    save(dict(tensors), storage_writer=writer)
    # DCP numbers processes from 1.
    written = sorted(folder.glob(f"shard-{rank + 1:05d}-*.safetensors"))
    for file in written:
        sync_file(file)
    return written


def read_parts(folder: Path, tensors: Mapping[str, Tensor], *, alone: bool) -> None:
    """Reads tensors into the memory that is given, whole or parts of sharded ones.

    Args:
        folder: safetensors files, whole ones or parts of any division.
        tensors: by name; filled in place.
        alone: whether this process reads by itself; else all call it together.
    """
    reader = _storage().HuggingFaceStorageReader(str(folder))
    with warnings.catch_warnings():
        # It warns that one process reads alone, which is what was asked for.
        warnings.filterwarnings("ignore", message="torch.distributed is disabled", category=UserWarning)
        load(dict(tensors), storage_reader=reader, no_dist=alone)


def _storage() -> Any:
    if not hasattr(dcp, "HuggingFaceStorageWriter"):
        raise CheckpointError(
            "this torch cannot keep sharded tensors in safetensors files",
            why="its own format for them is unpickled on reading",
            fix="torch 2.9 or newer, or --parallel=ddp",
        )
    return dcp

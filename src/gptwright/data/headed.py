"""Shards of llm.c and modded-nanogpt: a header of 256 int32, then the ids.

The header's first three numbers are a magic number, a version and how many ids follow (llm.c,
dev/data/data_common.py): 20240520 and 1 for GPT-2's vocabulary in uint16, which modded-nanogpt has too, and
20240801 and 7 for Llama 3's in uint32. Files are named `…_train_000001.bin` and `…_val_000000.bin`; each
document begins with the end-of-text id.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gptwright.data.manifest import Dtype
from gptwright.errors import DataError

HEADER_BYTES = 256 * 4

_FORMATS: dict[tuple[int, int], Dtype] = {(20240520, 1): "uint16", (20240801, 7): "uint32"}


@dataclass(frozen=True, slots=True)
class HeadedShard:
    """A file with a header: how its ids are stored, and how many there are."""

    path: Path
    dtype: Dtype
    tokens: int


def headed_shards(folder: Path) -> dict[str, list[HeadedShard]]:
    """The shards of a folder by split, in the order of their names; empty where it is no such folder.

    Raises:
        DataError: one side is missing, or files are of two kinds.
    """
    splits: dict[str, list[HeadedShard]] = {"train": [], "val": []}
    for path in sorted(folder.glob("*.bin")):
        shard = read_header(path)
        side = "val" if "val" in path.stem else "train" if "train" in path.stem else None
        if shard is not None and side is not None:
            splits[side].append(shard)
    if not any(splits.values()):
        return {}
    for name, shards in splits.items():
        if not shards:
            raise DataError(
                f"{folder} has shards of llm.c's format, but none named …_{name}_….bin",
                why="a run needs both sides",
                fix=f"get the {name} shards too, or prepare the text itself with `gptwright prepare`",
            )
    if len({shard.dtype for shards in splits.values() for shard in shards}) > 1:
        raise DataError(
            f"{folder} has shards of uint16 and of uint32",
            why="they are of two vocabularies",
            fix="move one kind into a folder of its own",
        )
    return splits


def read_header(path: Path) -> HeadedShard | None:
    """What the header of a file says; None where it has none."""
    try:
        header = np.fromfile(path, "<i4", count=256)
    except OSError:
        return None
    if len(header) < 256:
        return None
    dtype = _FORMATS.get((int(header[0]), int(header[1])))
    return None if dtype is None else HeadedShard(path, dtype, int(header[2]))

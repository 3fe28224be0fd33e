"""Prepares a corpus in small units and shards; run as a program, so that it can be killed."""

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

from gptwright.data import encoding, shards
from gptwright.data.encode import EncodeTask
from gptwright.data.pool import each_result
from gptwright.data.prepare import prepare


def unhurried(
    function: Callable[[EncodeTask], object], tasks: Iterator[EncodeTask], *, workers: int
) -> Iterator[object]:
    """Results that leave whoever watches the time to kill between two of them, on a busy machine too."""
    for result in each_result(function, tasks, workers=workers):
        time.sleep(0.05)
        yield result


if __name__ == "__main__":
    small_units = mock.patch("gptwright.data.sources.parquet.UNIT_BYTES", 60_000)
    small_shards = mock.patch.object(shards, "TOKENS_PER_SHARD", 30_000)
    with small_units, small_shards, mock.patch.object(encoding, "each_result", unhurried):
        prepare(sys.argv[1], out=Path(sys.argv[2]), tokenizer="byte", workers=int(sys.argv[3]))

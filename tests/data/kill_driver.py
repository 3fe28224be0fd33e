"""Prepares a corpus in small units and shards; run as a program, so that it can be killed."""

import sys
from pathlib import Path
from unittest import mock

from gptwright.data import shards
from gptwright.data.prepare import prepare

if __name__ == "__main__":
    small_units = mock.patch("gptwright.data.sources.parquet.UNIT_BYTES", 60_000)
    small_shards = mock.patch.object(shards, "TOKENS_PER_SHARD", 30_000)
    with small_units, small_shards:
        prepare(sys.argv[1], out=Path(sys.argv[2]), tokenizer="byte", workers=int(sys.argv[3]))

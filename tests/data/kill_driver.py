"""Prepares a corpus in small units and shards; run as a program, so that it can be killed."""

import sys
from pathlib import Path

from gptwright.data import shards
from gptwright.data.prepare import prepare
from gptwright.data.sources import parquet

if __name__ == "__main__":
    parquet.UNIT_BYTES = 60_000
    shards.TOKENS_PER_SHARD = 30_000
    prepare(sys.argv[1], out=Path(sys.argv[2]), tokenizer="byte", workers=int(sys.argv[3]))

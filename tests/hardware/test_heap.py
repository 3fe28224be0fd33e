"""Freed blocks go back to the system where the heap is told so; by itself glibc keeps them."""

import platform
import subprocess
import sys

import pytest

# A block that is freed teaches glibc to keep those of its size; then every other one of many is let go.
PROGRAM = """
import sys
import numpy as np, psutil
from gptwright.hardware.heap import give_back_freed_memory

if sys.argv[1] == "told":
    assert give_back_freed_memory()
np.ones(4 << 20, np.uint8)
blocks = [np.ones(3 << 20, np.uint8) for _ in range(64)]
before = psutil.Process().memory_info().rss
del blocks[::2]
print((before - psutil.Process().memory_info().rss) / 2**20)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc's heap is told anything")
@pytest.mark.parametrize("told", [True, False])
def test_freed_blocks_are_given_back_if_the_heap_is_told_so(told: bool) -> None:
    command = [sys.executable, "-c", PROGRAM, "told" if told else "not"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    mebibytes = float(done.stdout)
    assert (mebibytes > 90) if told else (mebibytes < 20)  # of 96

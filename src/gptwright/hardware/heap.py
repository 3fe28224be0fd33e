"""The C library's heap on Linux, which by itself keeps what a training frees.

glibc takes a large block from the system and gives it back when it is freed, but each block that it gives
back teaches it to keep blocks of that size (up to 32 MiB) in its heap next time, and there one that is still
in use holds all that lie below it: 0.2 to 0.3 GiB in a step of 124M parameters (docs/lab-notes.md).
"""

import ctypes
import sys

from gptwright.arithmetic.memory import GIVEN_BACK

# mallopt's name for the size from which blocks come from the system; setting it ends the learning.
M_MMAP_THRESHOLD = -3


def give_back_freed_memory() -> bool:
    """Makes every freed block of a mebibyte or more go back to the system; whether this system can."""
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none
    return mallopt is not None and bool(mallopt(M_MMAP_THRESHOLD, GIVEN_BACK))

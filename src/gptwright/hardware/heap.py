"""The C library's heap on Linux: whether it gives back what a training frees, or keeps it for the next step.

glibc takes a large block from the system and gives it back when it is freed, but each block that it gives
back teaches it to keep blocks of that size (up to 32 MiB) in its heap next time, and there one that is still
in use holds all that lie below it: 0.2 to 0.3 GiB in a step of 124M parameters (docs/lab-notes.md). So a run
that is to be small gives everything back.

What is given back must be taken again, page by page, each of which the system fills with zeros first: it made
a bfloat16 step of 124M parameters a fifth longer on the machine that was measured (docs/lab-notes.md). So a
run that is to be quick keeps everything.
"""

import ctypes
import sys

from gptwright.arithmetic.memory import GIVEN_BACK

# mallopt's names: what is kept at the heap's end, by how much it grows, and from which size, and how many,
# blocks come from the system, whose setting ends the learning.
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD, M_MMAP_MAX = -1, -2, -3, -4
# glibc's own settings of the first two and of the last.
GLIBC = {M_TRIM_THRESHOLD: 128 * 2**10, M_TOP_PAD: 128 * 2**10, M_MMAP_MAX: 65536}


def give_back_freed_memory() -> bool:
    """Makes every freed block of a mebibyte or more go back to the system; whether this system can."""
    return _set({**GLIBC, M_MMAP_THRESHOLD: GIVEN_BACK})


def keep_freed_memory() -> bool:
    """Makes the process keep all memory that it frees, for its own next use; whether this system can."""
    return _set({M_MMAP_MAX: 0, M_TRIM_THRESHOLD: -1, M_TOP_PAD: 64 * 2**20})


def _set(options: dict[int, int]) -> bool:
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none
    return mallopt is not None and all(mallopt(option, value) for option, value in options.items())

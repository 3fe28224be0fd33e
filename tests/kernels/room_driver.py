"""A process whose address space leaves a thread of the attention kernel no room, and that goes on afterwards.

A process of its own: what others freed before would be room enough. Run with a dtype's name by
test_attention.py.
"""

import resource
import sys
from pathlib import Path

import torch

from gptwright.kernels.library import Missing, load_kernels
from gptwright.train.memory import is_out_of_memory
from tests.kernels.test_attention import Case, attend

# More than the 64 MiB that the C library reserves for threads; nothing of it is touched.
LARGE, SMALL = Case(1, 131_072, 1, 128), Case(1, 4, 1, 128)


def main(dtype: torch.dtype) -> None:
    """Says that the kernel was refused room, if it was, and that it works again."""
    kernels = load_kernels(dtype)
    assert not isinstance(kernels, Missing)
    qkv, y = (torch.empty(LARGE.T, parts * LARGE.D, dtype=dtype) for parts in (3, 1))
    logarithms = torch.empty(1, LARGE.T)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before, most = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + 2**22, most))
    try:
        kernels("attention", qkv, y, logarithms, *LARGE.how(0, 0, 1.0))  # type: ignore[arg-type]
    except MemoryError as error:
        resource.setrlimit(resource.RLIMIT_AS, (before, most))
        sys.stdout.write(f"{error}; lack of memory: {is_out_of_memory(error)}\n")
    dy = torch.ones(SMALL.T, SMALL.D, dtype=dtype)
    again, _ = attend(kernels, SMALL, torch.ones(SMALL.T, 3 * SMALL.D, dtype=dtype), dy)
    sys.stdout.write(f"works again: {torch.equal(again, dy)}\n")


if __name__ == "__main__":
    main(getattr(torch, sys.argv[1]))

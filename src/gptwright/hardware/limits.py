"""How much main memory the system lets this process use before it refuses or kills.

A container's limit is a control group's: the kernel kills the process that passes it, without a word. Version
2 keeps it in `memory.max`, version 1 in `memory.limit_in_bytes`; a group's ancestors limit it too. A limit on
the address space (`ulimit -v`) refuses instead, and counts what is mapped and not only what is used, so it is
told apart.
"""

import contextlib
import sys
from dataclasses import dataclass
from pathlib import Path

from gptwright.hardware.cpu import cpu_memory_bytes

# Version 1 writes the largest page count for "no limit".
_NO_LIMIT = 2**60


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """The least of all limits on resident memory, and where it comes from."""

    limit_bytes: int
    source: str


def memory_limit(*, root: Path = Path("/")) -> MemoryLimit | None:
    """What the kernel will kill beyond: a control group's limit, or the machine's memory.

    Args:
        root: where `proc` and `sys` are.
    """
    limits = [MemoryLimit(value, f"control group, {path}") for path, value in _group_limits(root)]
    total = cpu_memory_bytes()
    if total is not None:
        limits.append(MemoryLimit(total, "this machine's memory"))
    return min(limits, key=lambda limit: limit.limit_bytes, default=None)


def _group_limits(root: Path) -> list[tuple[Path, int]]:
    found = []
    try:
        lines = (root / "proc/self/cgroup").read_text("utf-8").splitlines()
    except OSError:
        return []
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        if controllers == "":
            base, name = root / "sys/fs/cgroup", "memory.max"
        elif "memory" in controllers.split(","):
            base, name = root / "sys/fs/cgroup/memory", "memory.limit_in_bytes"
        else:
            continue
        inside = Path(group.lstrip("/"))
        for part in (inside, *inside.parents):
            path = base / part / name
            with contextlib.suppress(OSError, ValueError):
                value = int(path.read_text("utf-8"))
                if value < _NO_LIMIT:
                    found.append((path, value))
    return found


def has_address_limit() -> bool:
    """Whether the system limits this process's address space."""
    if sys.platform == "win32":
        return False
    import resource

    return resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY

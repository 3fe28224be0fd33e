"""This machine's CPU without torch: its name, cores, memory and dtypes, and how fast it multiplies.

A plan for a CPU needs a peak, and no table has one: the rate depends on vector units, on clocks under load
and on the cores that this process may use. So it is measured, with the BLAS that numpy brings, which reaches
on an AVX2 machine what torch's reaches (156 against 150 to 170 GFLOP/s). What disturbs a measurement only
ever makes it slower, so the best of many short products counts.

Cost: importing numpy, about 0.1 s, and 0.12 s of products, once a process.
"""

import contextlib
import ctypes
import functools
import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path

SECONDS = 0.12
# On a busy machine, threads that wait for each other can lose a slice of the scheduler with every product. A
# rate below that of one thread shows it; then it is worth to wait this many times longer for a good moment.
PATIENCE = 4
# Sides of the square matrices. OpenBLAS multiplies the first in one thread. Small ones fit into a slice, and
# each gets its turns; a machine of many cores needs the large ones, which are tried while there is time.
ONE_THREAD = 64
SMALL = (128, 256, 384, 512)
LARGE = (1024, 2048)


def cpu_name() -> str:
    """What its maker calls it, or the architecture where the system does not say."""
    name = _linux_name() or _macos_name() or _windows_name()
    return name or platform.processor() or platform.machine()


def usable_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)


def has_bfloat16() -> bool:
    """Whether this CPU multiplies bfloat16 in hardware, as Linux says; False elsewhere."""
    flags = _cpuinfo("flags").split()
    return "avx512_bf16" in flags or "amx_bf16" in flags


def has_matrix_registers() -> bool:
    """Whether this CPU multiplies bfloat16 by whole tiles (Intel's AMX), as Linux says; False elsewhere."""
    return "amx_bf16" in _cpuinfo("flags").split()


def cpu_memory_bytes() -> int | None:
    """The machine's memory in bytes; None if the system does not say."""
    if hasattr(os, "sysconf"):
        with contextlib.suppress(ValueError, OSError):
            return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return _windows_memory_bytes()


@functools.lru_cache
def measure_cpu_peak(*, seconds: float = SECONDS, clock: Callable[[], float] = time.perf_counter) -> float:
    """The best rate in FLOP/s at which numpy multiplies square float32 matrices on all usable cores.

    Measured once a process.

    Args:
        seconds: about how long to measure.
        clock: gives seconds. With one thread, `time.process_time` leaves out what other processes took.
    """
    begin = clock()
    products = {side: _product(side, clock) for side in (ONE_THREAD, *SMALL)}
    single = max(2 * ONE_THREAD**3 / products[ONE_THREAD]() for _ in range(20))
    best = 0.0
    while (spent := clock() - begin) < seconds * (PATIENCE if best < single else 1):
        fitting = [side for side in LARGE if best and 2 * side**3 / best < (seconds - spent) / 4]
        for side in (*SMALL, *fitting):
            if side not in products:
                products[side] = _product(side, clock)
            best = max(best, 2 * side**3 / products[side]())
    return max(best, single)


def _product(side: int, clock: Callable[[], float]) -> Callable[[], float]:
    """Multiplies two matrices of `side` and says how many seconds it took; warm before it is given out."""
    import numpy as np  # a plan for a GPU never pays for it

    a, out = np.ones((side, side), np.float32), np.empty((side, side), np.float32)

    def timed() -> float:
        begin = clock()
        np.matmul(a, a, out=out)
        return clock() - begin

    timed()
    return timed


def _linux_name() -> str | None:
    return _cpuinfo("model name") or None


def _cpuinfo(field: str) -> str:
    """What Linux says of the first core under `field`; empty where it says nothing."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
            if line.startswith(field):
                return line.partition(":")[2].strip()
    return ""


def _macos_name() -> str | None:
    if sys.platform == "darwin":
        size = ctypes.c_size_t(256)
        text = ctypes.create_string_buffer(size.value)
        call = ctypes.CDLL(None).sysctlbyname
        if call(b"machdep.cpu.brand_string", text, ctypes.byref(size), None, 0) == 0:
            return text.value.decode()
    return None


def _windows_name() -> str | None:
    if sys.platform == "win32":
        import winreg

        place = r"HARDWARE\DESCRIPTION\System\CentralProcessor\0"
        with contextlib.suppress(OSError), winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, place) as key:
            return str(winreg.QueryValueEx(key, "ProcessorNameString")[0]).strip()
    return None


def _windows_memory_bytes() -> int | None:
    if sys.platform == "win32":
        # MEMORYSTATUSEX: its own length and the load in 32 bits each, then seven fields of 64 bits, of which
        # the first is the physical memory.
        status = (ctypes.c_uint64 * 8)()
        status[0] = ctypes.sizeof(status)
        if ctypes.windll.kernel32.GlobalMemoryStatusEx(ctypes.byref(status)):
            return status[1]
    return None

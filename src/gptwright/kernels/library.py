"""Builds the C of this folder for this very CPU with the compiler that is here, once, and calls it.

Compiled where it runs, the code uses every vector instruction that the CPU has, and needs no package for each
platform: three to eight seconds for the first run of a machine, nothing later. It is kept in the cache folder
under a name made of all that decides it. Only gcc is taken: its OpenMP is torch's own, so that both work with
one set of threads; with two, each would wait for the other's (docs/lab-notes.md). A library works in one
dtype.
"""

import ctypes
import functools
import hashlib
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import torch
from torch import Tensor

from gptwright.errors import DeviceError, GptwrightError
from gptwright.files import cache_folder, replace_bytes
from gptwright.hardware.kernels import find_kernel_compiler, missing_for_kernels

# NaN and infinity keep their meaning: a run is judged by them.
FLAGS = ("-O3", "-march=native", "-fopenmp", "-fno-math-errno", "-fno-trapping-math", "-fPIC")
# What a number is.
BUILDS: dict[torch.dtype, tuple[str, ...]] = {torch.bfloat16: (), torch.float32: ("-DFLOAT32",)}
# gcc takes three to eight seconds; a compiler that takes so long is not one to wait for.
PATIENCE = 120.0

_SIZE, _REAL, _COUNT, _PLACE = ctypes.c_int64, ctypes.c_float, ctypes.c_int, ctypes.c_void_p
# Arguments of each function before the number of threads.
_ARGUMENTS = {
    "gelu": (_PLACE, _PLACE, _SIZE),
    "gelu_back": (_PLACE, _PLACE, _PLACE, _SIZE),
    "relu2": (_PLACE, _PLACE, _SIZE),
    "relu2_back": (_PLACE, _PLACE, _PLACE, _SIZE),
    "drop": (_PLACE, _PLACE, _SIZE, _SIZE, _REAL, _SIZE),
    "drop_stream": (_PLACE, _PLACE, _SIZE, _SIZE, _REAL, _SIZE),
    "add": (_PLACE, _PLACE, _PLACE, _SIZE),
    "sum_rows": (_PLACE, _PLACE, _SIZE, _SIZE),
    "norm": (*[_PLACE] * 7, _SIZE, _SIZE, _REAL),
    "norm_back": (*[_PLACE] * 10, _SIZE, _SIZE),
    "cross_entropy": (_PLACE, _PLACE, _PLACE, *[_SIZE] * 3, _COUNT, _REAL),
    "attention": (*[_PLACE] * 5, _COUNT, _REAL, _SIZE, _SIZE, _REAL, *[_SIZE] * 4),
    "attention_back": (*[_PLACE] * 7, _COUNT, _REAL, _SIZE, _SIZE, _REAL, *[_SIZE] * 4),
    "linear": (*[_PLACE] * 4, *[_SIZE] * 4),
    "linear_input": (*[_PLACE] * 3, *[_SIZE] * 4),
    "linear_weight": (*[_PLACE] * 3, *[_SIZE] * 4, _COUNT),
}
# Those that work in room of each thread's own, and say whether there was none.
_TAKE_ROOM = ("attention", "attention_back", "linear", "linear_input", "linear_weight")


@dataclass(frozen=True, slots=True)
class Missing:
    """Why there are no kernels here."""

    reason: str


class Kernels:
    """The functions, with tensors for pointers, on as many threads as torch has.

    Args:
        path: the shared library.
        dtype: of the numbers that products read and write: one of `BUILDS`.

    Attributes:
        dtype: the same.
        multiplies: whether its products of matrices are the quickest that this CPU has; torch's are if not.
    """

    def __init__(self, path: Path, dtype: torch.dtype) -> None:
        library = ctypes.CDLL(str(path))
        self.dtype = dtype
        self._functions = {}
        for name, arguments in _ARGUMENTS.items():
            function = getattr(library, name)
            function.argtypes = (*arguments, _COUNT)
            function.restype = _COUNT if name in _TAKE_ROOM else None
            self._functions[name] = function
        self.multiplies = bool(library.multiplies())

    @property
    def word(self) -> int:
        """Numbers that its products take together: rows of them have a multiple of it."""
        return torch.float32.itemsize // self.dtype.itemsize

    def __call__(self, name: str, *arguments: Tensor | float | None) -> None:
        """Calls a function; tensors are contiguous, and None is a null pointer.

        Raises:
            MemoryError: the system gives a thread no room to work in.
        """
        places = [a.data_ptr() if isinstance(a, Tensor) else a for a in arguments]
        if self._functions[name](*places, torch.get_num_threads()):
            raise MemoryError(f"there is no room for a thread to work in ({name})")


def load_kernels(dtype: torch.dtype) -> Kernels | Missing:
    """Those of a dtype, built if they are not in the cache folder yet, or why there are none.

    Looked for once a process and compiler.
    """
    compiler = find_kernel_compiler()
    if (missing := missing_for_kernels()) is not None or compiler is None:
        return Missing(missing or "no compiler is installed")
    return _loaded(compiler, cache_folder(), dtype)


def require_kernels(dtype: torch.dtype) -> Kernels:
    """Those of a dtype.

    Raises:
        DeviceError: there are none here.
    """
    kernels = load_kernels(dtype)
    if isinstance(kernels, Missing):
        raise DeviceError(
            "kernels = True cannot be done here",
            why=kernels.reason,
            fix="--kernels=auto, or install what is missing",
        )
    return kernels


@functools.lru_cache
def _loaded(compiler: str, cache: Path, dtype: torch.dtype) -> Kernels | Missing:
    try:
        version = subprocess.run([compiler, "--version"], capture_output=True, timeout=PATIENCE, check=True)
        if b"Free Software Foundation" not in version.stdout:
            return Missing(f"{compiler} is not gcc, whose OpenMP is torch's")
        return _kept_or_built(compiler, version.stdout, cache / "kernels", dtype)
    except (OSError, subprocess.SubprocessError) as error:
        said = (getattr(error, "stderr", None) or b"").decode(errors="replace").splitlines()
        why = next((line for line in said if "error" in line), str(error))
        return Missing(f"our own kernels could not be built: {why}")


def _kept_or_built(compiler: str, version: bytes, folder: Path, dtype: torch.dtype) -> Kernels:
    flags = (*FLAGS, *BUILDS[dtype])
    sources = {
        file.name: file.read_bytes()
        for file in sorted(resources.files("gptwright.kernels").iterdir(), key=lambda file: file.name)
        if file.name.endswith((".c", ".h"))
    }
    decides = (*sources.values(), " ".join(flags).encode(), compiler.encode(), version, _processor())
    kept = folder / f"step-{hashlib.sha256(b'|'.join(decides)).hexdigest()[:16]}.so"
    if kept.is_file():
        return Kernels(kept, dtype)
    with tempfile.TemporaryDirectory() as beside:
        for name, source in sources.items():
            Path(beside, name).write_bytes(source)
        made = Path(beside, "step.so")
        run = functools.partial(subprocess.run, cwd=beside, capture_output=True, timeout=PATIENCE, check=True)
        units = [name for name in sources if name.endswith(".c")]
        with ThreadPoolExecutor() as cores:
            list(cores.map(lambda unit: run([compiler, *flags, "-c", unit]), units))
        objects = [f"{Path(unit).stem}.o" for unit in units]
        run([compiler, *flags, "-shared", *objects, "-o", str(made), "-lm"])
        try:
            folder.mkdir(parents=True, exist_ok=True)
            replace_bytes(kept, made.read_bytes())
        except (OSError, GptwrightError):
            return Kernels(made, dtype)  # what is loaded may go
        return Kernels(kept, dtype)


def _processor() -> bytes:
    """What tells this CPU's instructions from another's that has the same cache folder."""
    lines = Path("/proc/cpuinfo").read_bytes().splitlines()
    return next((line for line in lines if line.startswith((b"flags", b"Features"))), b"")

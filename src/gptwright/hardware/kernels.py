"""Whether our own kernels can be expected on a CPU, as far as that is told without torch and without a build.

A plan starts without torch and ends in half a second, so it cannot do what a run does: build the kernels and
time them (`gptwright.kernels`, `train/products.py`). What both ask is here, once: in which dtype the kernels
would multiply, which settings rule them out, and which compiler would build them.

Cost: a look along the path.
"""

import os
import platform
import shutil
import sys
from typing import Literal

from gptwright.config.schema import TrainConfig


def find_kernel_compiler() -> str | None:
    """The C compiler that would build our own kernels: `$CC`, else gcc; None where neither is on the path."""
    return shutil.which(os.environ.get("CC", "gcc")) or shutil.which("gcc")


def missing_for_kernels() -> str | None:
    """What this machine lacks to build them, if it lacks anything."""
    if not sys.platform.startswith("linux"):
        return f"our own kernels are for Linux, and this is {platform.system()}"
    if find_kernel_compiler() is None:
        return "no gcc is installed, which our own kernels are built with"
    return None


def dtype_of_kernels(config: TrainConfig, *, bfloat16: bool) -> Literal["bfloat16", "float32"]:
    """In which they would multiply: bfloat16 where the CPU has it and no other is asked for, else float32.

    Args:
        config: the settings.
        bfloat16: whether the CPU has it in hardware.
    """
    return "bfloat16" if bfloat16 and config.dtype in ("auto", "bfloat16") else "float32"


def setting_against_kernels(config: TrainConfig, dtype: str) -> str | None:
    """Why these settings rule our own kernels out that multiply in a dtype, if they do."""
    if config.kernels is False:
        return "kernels = False"
    if config.dtype not in ("auto", dtype):
        return f"they compute in {dtype} here, and dtype = {config.dtype} is asked for"
    if dtype == "bfloat16" and config.attention_dtype == "float32":
        return "in bfloat16 they compute attention in it too"
    if config.compile is True:
        return "compile = True leaves it to torch's compiler"
    return None

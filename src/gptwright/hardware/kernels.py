"""Whether our own kernels can be expected on a CPU, as far as that is told without torch and without a build.

A plan starts without torch and ends in half a second, so it cannot do what a run does: build the kernels and
time them (`gptwright.kernels`, `train/products.py`). What both ask is here, once: which settings rule the
kernels out, and which compiler would build them.

Cost: a look along the path.
"""

import os
import shutil

from gptwright.config.schema import TrainConfig


def find_kernel_compiler() -> str | None:
    """The C compiler that would build our own kernels: `$CC`, else gcc; None where neither is on the path."""
    return shutil.which(os.environ.get("CC", "gcc")) or shutil.which("gcc")


def setting_against_kernels(config: TrainConfig) -> str | None:
    """Why these settings rule our own kernels out, if they do."""
    if config.kernels is False:
        return "kernels = False"
    if config.dtype not in ("auto", "bfloat16") or config.attention_dtype == "float32":
        return "they compute in bfloat16, attention included"
    if config.compile is True:
        return "compile = True leaves it to torch's compiler"
    return None

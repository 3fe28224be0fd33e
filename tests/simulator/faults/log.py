"""What a log holds besides numbers, or lacks: failed allocations, warnings, a beginning."""

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from tests.simulator.devices import ALL, GIB
from tests.simulator.faults.fault import Fault, logged_step, pick, retold
from tests.simulator.parts import largest_micro_batch
from tests.simulator.run import Insertion, Run

SMALL_CARDS = tuple(d.name for d in ALL if d.kind == "consumer" and d.multiprocessors < 68 and d.bf16)
FEW_MULTIPROCESSORS = "Not enough SMs to use max_autotune_gemm mode"
WARNINGS = (
    f"W0317 09:12:01.123000 140311 torch/_inductor/utils.py:1137] [0/0] {FEW_MULTIPROCESSORS}",
    f"[2024-03-17 09:12:01,123] [0/0] torch._inductor.utils: [WARNING] {FEW_MULTIPROCESSORS}",
    "model.py:62: UserWarning: 1Torch was not compiled with flash attention. (Triggered internally at"
    " ..\\aten\\src\\ATen\\native\\transformers\\cuda\\sdp_utils.cpp:263.)",
    "WARNING: using slow attention. Flash Attention requires PyTorch >= 2.0",
    "site-packages/torch/_inductor/compile_fx.py:124: UserWarning: TensorFloat32 tensor cores for float32"
    " matrix multiplication available but not enabled. Consider setting"
    " `torch.set_float32_matmul_precision('high')` for better performance.",
)
ERRORS = (
    "AssertionError: Torch not compiled with CUDA enabled",
    "RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU.",
    "RuntimeError: Windows not yet supported for torch.compile",
    "FileNotFoundError: [Errno 2] No such file or directory: 'data/mine/train.bin'",
    "RuntimeError: CUDA error: device-side assert triggered",
)


def out_of_memory(rng: np.random.Generator, run: Run) -> Run:
    """The logits of one micro-batch do not fit; nothing was trained."""
    truth = run.truth
    memory = truth.device.memory_gib * GIB
    number_bytes = 4 if rng.random() < 0.7 else 2
    per_sequence = truth.shape.block_size * truth.shape.vocab_size * number_bytes
    least = max(1.3 * largest_micro_batch(truth.shape, truth.device), 0.08 * memory / per_sequence, 1.0)
    micro = 2 ** int(np.ceil(np.log2(least)))
    accumulation = max(truth.device_count, truth.accumulation // 4)
    run = retold(run.with_truth(micro_batch=micro, accumulation=accumulation, compiled=False))
    texts = (
        "Traceback (most recent call last):",
        '  File "train.py", line 300, in <module>',
        _failed_allocation(rng, micro * per_sequence, int(0.985 * memory)),
    )
    return run.with_handover(visible_until=-1, insertions=tuple(Insertion(step=-1, text=t) for t in texts))


def _failed_allocation(rng: np.random.Generator, size: int, total: int) -> str:
    """torch's message, as it was before 2.1 and as it is since."""
    free = int(min(size, 0.6 * total) * float(rng.uniform(0.3, 0.9)))
    reserved = total - free - int(0.5 * GIB)
    allocated = int(reserved * 0.97)
    if rng.random() < 0.5:
        return (
            f"torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate {_size(size)} (GPU 0;"
            f" {_size(total)} total capacity; {_size(allocated)} already allocated; {_size(free)} free;"
            f" {_size(reserved)} reserved in total by PyTorch)"
        )
    return (
        f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {_size(size)}. GPU 0 has a total"
        f" capacity of {_size(total)} of which {_size(free)} is free. Including non-PyTorch memory, this"
        f" process has {_size(total - free)} memory in use. Of the allocated memory {_size(allocated)} is"
        f" allocated by PyTorch, and {_size(reserved - allocated)} is reserved by PyTorch but unallocated."
    )


def _size(number: float) -> str:
    """torch's own text of a size."""
    return f"{number / GIB:.2f} GiB" if number >= GIB else f"{number / 2**20:.2f} MiB"


def known_warning(rng: np.random.Generator, run: Run) -> Run:
    """A framework's warning between the lines."""
    step = -1 if rng.random() < 0.5 else logged_step(rng, run, 0.0, 0.05)
    return run.with_handover(insertions=(Insertion(step=step, text=pick(rng, WARNINGS)),))


def incomplete(rng: np.random.Generator, run: Run) -> Run:
    """The capture begins in the middle of the run."""
    return run.with_handover(header=False, visible_from=logged_step(rng, run, 0.25, 0.7))


def newest_first(rng: np.random.Generator, run: Run) -> Run:
    """The log is handed over with its newest line first."""
    return run.with_handover(hazards=("newest-first",))


def several_runs(rng: np.random.Generator, run: Run) -> Run:
    """The log of a first attempt stands in front of that of the run."""
    return run.with_handover(hazards=("appended",))


def known_error(rng: np.random.Generator, run: Run) -> Run:
    """What ends a run before its first step on another kind of machine than it was written for."""
    texts = (
        "Traceback (most recent call last):",
        '  File "train.py", line 167, in <module>',
        pick(rng, ERRORS),
    )
    return run.with_handover(visible_until=-1, insertions=tuple(Insertion(step=-1, text=t) for t in texts))


FAULTS: Mapping[str, Fault] = MappingProxyType(
    {
        "out-of-memory": Fault(
            plant=out_of_memory,
            formats=("nanogpt", "llama2c", "build-nanogpt", "litgpt", "hf"),
            wishes=MappingProxyType(
                {
                    "kinds": ("consumer", "datacenter"),
                    "vocabulary": 32000,
                    "parameters": (6e7, 4e8),
                    "variant": "",
                    "days": 20.0,
                }
            ),
            allowed=("incomplete-log", "schedule-mismatch", "long-plan"),
        ),
        "known-warning": Fault(
            plant=known_warning,
            formats=("nanogpt", "llama2c", "build-nanogpt", "nanochat", "litgpt", "hf", "torchtitan"),
            wishes=MappingProxyType(
                {"devices": SMALL_CARDS, "variant": "", "parameters": (2e7, 1.7e8), "days": 20.0}
            ),
        ),
        "newest-first": Fault(
            plant=newest_first,
            formats=("nanogpt", "llama2c", "build-nanogpt", "nanochat", "llmc", "litgpt", "torchtitan"),
            wishes=MappingProxyType({"variant": "", "finished": True}),
        ),
        "several-runs": Fault(
            plant=several_runs,
            formats=("nanogpt", "llama2c", "build-nanogpt", "nanochat", "llmc", "litgpt", "torchtitan"),
            wishes=MappingProxyType({"variant": "", "finished": True}),
        ),
        "known-error": Fault(
            plant=known_error,
            formats=("nanogpt", "llama2c", "build-nanogpt", "litgpt", "hf"),
            wishes=MappingProxyType({"variant": "", "kinds": ("consumer", "datacenter")}),
            allowed=("incomplete-log", "schedule-mismatch", "long-plan"),
        ),
        "incomplete-log": Fault(
            plant=incomplete,
            formats=("nanogpt", "llama2c", "build-nanogpt", "nanochat", "llmc", "litgpt", "torchtitan"),
            wishes=MappingProxyType({"variant": "", "finished": True}),
            allowed=("plateau-unproven", "small-batch-for-lr"),
        ),
    }
)

"""Which tensor an out-of-memory message speaks of: its size names it.

`CUDA out of memory. Tried to allocate 6.14 GiB` at micro-batch 32, context 1024 and a vocabulary of 50304 is
32·1024·50304·4 bytes: the logits in float32. The tensors of a training step are few and of different sizes,
so a size rarely fits two, and one that fits none is not explained.

torch asks CUDA for whole segments (c10/cuda/CUDACachingAllocator.cpp): 2 MiB for a tensor below 1 MiB, 20 MiB
for one below 10, and above that the size rounded up to 2 MiB. So 393 MiB of logits are reported as
394.00 MiB, and a report of 2.00 or 20.00 MiB says nothing about the tensor.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from gptwright.arithmetic.shape import ModelShape

KIB, MIB, GIB = 2**10, 2**20, 2**30
SEGMENT_STEP = 2 * MIB
LEAST_OWN_SEGMENT = 10 * MIB
SHARED_SEGMENTS = (2 * MIB, 20 * MIB)
# torch's messages: of a GPU's allocator with two decimals, of the CPU's in bytes. On Apple's GPUs it writes
# GB for 2^30 bytes (format_size in aten/src/ATen/mps/MPSAllocator.mm).
TRIED = re.compile(r"[Tt]ried to allocate (\d{1,20}(?:\.\d{1,9})?) ?([GMK]i?B|bytes)", re.ASCII)
# The device's memory: `GPU 0 has a total capacity of 15.78 GiB`, older `15.78 GiB total capacity`.
CAPACITY = re.compile(
    r"total capac\w+ of (\d{1,6}(?:\.\d{1,3})?) ?([GM]iB)"
    r"|(\d{1,6}(?:\.\d{1,3})?) ?([GM]iB)(?: is the)? total capacity",
    re.ASCII,
)
UNITS = {"GiB": GIB, "MiB": MIB, "KiB": KIB, "GB": GIB, "MB": MIB, "KB": KIB, "bytes": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """A tensor of a training step.

    Attributes:
        name: what it is, as the subject of a sentence.
        formula: its size in bytes as a product of the shape's numbers.
        size_bytes: that product.
    """

    name: str
    formula: str
    size_bytes: int

    def __str__(self) -> str:
        return f"{self.name}: {self.formula}"


def allocation_bytes(message: str) -> float | None:
    """The size that an out-of-memory message names; None where it names none."""
    tried = TRIED.search(message)
    return float(tried[1]) * UNITS[tried[2]] if tried else None


def capacity_bytes(message: str) -> int | None:
    """The device's memory as an out-of-memory message gives it; None where it does not."""
    found = CAPACITY.search(message)
    if found is None:
        return None
    number, unit = found[1] or found[3], found[2] or found[4]
    return round(float(number) * UNITS[unit])


def decode_allocation(
    size_bytes: float, shape: ModelShape, *, micro_batch: int, dtype: str | None = None
) -> tuple[Allocation, ...]:
    """The tensors whose allocation a message would show as this size; the closest first, often none.

    Args:
        size_bytes: what the message says, in bytes. It is taken for rounded to two decimals of its largest
            binary unit, as torch prints it.
        shape: the model.
        micro_batch: sequences in one forward pass.
        dtype: of the matrix multiplications; with `float32` nothing has 2 bytes an element. None: unknown.
    """
    if size_bytes in SHARED_SEGMENTS:
        return ()
    tolerance = 0.005 * _unit(size_bytes) + 1
    found = []
    for tensor in _tensors(shape, micro_batch):
        if dtype == "float32" and tensor.formula.endswith("·2"):
            continue
        distance = min(
            abs(size_bytes - tensor.size_bytes), abs(size_bytes - _segment_bytes(tensor.size_bytes))
        )
        if distance <= tolerance:
            found.append((distance, tensor))
    return tuple(tensor for _, tensor in sorted(found, key=lambda pair: pair[0]))


def _unit(size_bytes: float) -> int:
    return next((unit for unit in (GIB, MIB, KIB) if size_bytes >= unit), 1)


def _segment_bytes(size_bytes: int) -> int:
    """What torch asks CUDA for when it has no room for a tensor of this size."""
    if size_bytes < LEAST_OWN_SEGMENT:
        return size_bytes
    return -(-size_bytes // SEGMENT_STEP) * SEGMENT_STEP


def _tensors(shape: ModelShape, micro_batch: int) -> Iterator[Allocation]:
    """The large tensors of a step, those that overflow most often first."""
    B, T, C = micro_batch, shape.block_size, shape.n_embd
    H, V = shape.n_head, shape.vocab_size
    yield _tensor("the float32 logits, or a gradient or log-softmax of their size", B, T, V, 4)
    yield _tensor("the logits in 16 bits, or their gradient", B, T, V, 2)
    yield _tensor("one layer's attention scores in float32", B, H, T, T, 4)
    yield _tensor("one layer's attention scores in 16 bits", B, H, T, T, 2)
    yield _tensor("one layer's MLP hidden activations in float32", B, T, 4, C, 4)
    yield _tensor("one layer's MLP hidden activations in 16 bits", B, T, 4, C, 2)
    yield _tensor("one layer's queries, keys and values in float32", B, T, 3, C, 4)
    yield _tensor("one layer's queries, keys and values in 16 bits", B, T, 3, C, 2)
    yield _tensor("the residual stream in float32", B, T, C, 4)
    yield _tensor("one layer's activations of the model's width in 16 bits", B, T, C, 2)
    yield _tensor("the token embedding, its gradient or an optimizer moment of it", V, C, 4)
    yield _tensor("the output head's weight or its gradient in 16 bits", V, C, 2)
    yield _tensor("one MLP matrix, its gradient or an optimizer moment of it", 4, C, C, 4)
    yield _tensor("one MLP matrix or its gradient in 16 bits", 4, C, C, 2)
    yield _tensor("one layer's query-key-value matrix, its gradient or an optimizer moment of it", 3, C, C, 4)
    yield _tensor("one layer's query-key-value matrix or its gradient in 16 bits", 3, C, C, 2)
    yield _tensor("the position embedding, its gradient or an optimizer moment of it", T, C, 4)


def _tensor(name: str, *factors: int) -> Allocation:
    return Allocation(name=name, formula="·".join(map(str, factors)), size_bytes=prod(factors))

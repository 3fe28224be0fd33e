"""How much memory a training step needs, and how large a micro-batch fits.

A step is largest at one of a few moments: in the loss, when the backward pass enters the last block, when it
has reached the first, at its end, or in the optimizer. What is alive at each is summed, and the largest sum
is the answer. With a vocabulary of 50,000 it is nearly always the loss, which is why the logits and not the
weights decide what fits on a small card.

Weights, gradients and AdamW's moments are float32, 16 bytes a parameter. `zero_grad(set_to_none=True)` frees
the gradients, so with one micro-batch a step there are none while the activations are largest; with several
there are. A graph that `torch.compile` made hands out all its gradients at its end, beside those there are.

Nothing here needs torch; an answer takes some tens of microseconds. It is checked against torch's tracker and
against processes that ran: docs/memory.md.
"""

from dataclasses import dataclass, fields, replace

from gptwright.arithmetic.moments import Moment, moments, standing_gradients
from gptwright.arithmetic.step import FLOAT, Step

MIB = 2**20
GIB = 2**30

# What a process holds on a GPU beside its tensors: the driver's context, kernels as they are loaded, cuBLAS's
# workspace (8 MiB, 32 on Hopper). Stas Bekman's ml-engineering measured 0.47 to 0.92 GiB on an A100; out-of-
# memory messages give, as what the process holds beyond what torch reserved, 0.27 GiB (RTX 4060, minimind#48)
# and, as total − reserved − free, 0.85 GiB (V100, nanoGPT#61) and 1.15 GiB (RTX 2080 Ti,
# pretraining-with-human-feedback#5). The allocator rounds to 512 bytes, which is nothing beside it.
CUDA_OVERHEAD = 768 * MIB

# A CPU's whole process is measured, so Python, torch and its threads count: resident after a training of next
# to nothing with torch 2.13, and with torch.compile. torch's checkpointing loads a part of the compiler.
PROCESS = 278 * MIB
COMPILER = 151 * MIB
CHECKPOINTING = 80 * MIB
# What the same takes more where torch was built for CUDA, on a machine without a GPU: 281 MiB with Python
# 3.12 and 326 with 3.13 (torch 2.13.0+cu130). With any part of the compiler comes Triton.
GPU_LIBRARIES = 300 * MIB
TRITON = 72 * MIB

# glibc's malloc gives tensors of 32 MiB and more a mapping of their own, and returns it; smaller ones share a
# heap, in which freed gaps stay (aligned allocations obstruct their merging: glibc bug 30723). By
# how much the process grew beyond its tensors, as a share of those in the heap: a median of 0.22 without
# accumulation and 0.40 with it, where old gradients lie among activations (20 trainings, glibc 2.36).
# With MALLOC_MMAP_THRESHOLD_=65536 the gaps are gone and the tensors alone are right within 1 %.
# A run that is asked to save memory has mappings from `GIVEN_BACK` up (`gptwright.hardware.heap`).
OWN_MAPPING = 32 * MIB
GIVEN_BACK = MIB
HEAP_GAPS = {1: 0.22, 2: 0.4}
# A run with our own kernels keeps all that it frees, whatever its size. By how much the process grew beyond
# its tensors, as a share of activations, logits and gradients, which come and go in every pass: 0.30 to 0.37
# without accumulation and 0.54 to 0.63 with it (9 trainings, glibc 2.36, benchmarks/memory.py).
KEPT_GAPS = {1: 0.35, 2: 0.6}

PHASES = {
    "loss": "in the loss, when gradients of the logits stand beside their log-softmax",
    "backward": "in the backward pass, which has begun while all activations are still kept",
    "end of backward": "at the end of the backward pass, when nearly every gradient has been made",
    "optimizer": "in the optimizer's step, when weights, gradients and both moments are all there is",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingMemory:
    """Bytes at the peak of a training step; what is not alive then is 0.

    Attributes:
        weights: the parameters.
        gradients: of the parameters, those under way and data-parallel buckets included.
        optimizer: its moments, two or with Muon one, and what an update makes beside them.
        weight_copies: 16-bit copies of matrices that autocast made and the backward pass needs.
        activations: of the blocks and norms, kept or made again, with gradients passing through them.
        logits: the head's output, its loss and their gradients.
        overhead: what the process holds beside tensors.
        peak_phase: which moment it is: a key of `PHASES`, which says it in words.
    """

    weights: int
    gradients: int
    optimizer: int
    weight_copies: int
    activations: int
    logits: int
    overhead: int
    peak_phase: str

    @property
    def total(self) -> int:
        """All of it."""
        return sum(getattr(self, field.name) for field in fields(self) if field.name != "peak_phase")


def training_memory(step: Step) -> TrainingMemory:
    """What one process needs at the largest moment of a training step, after the first."""
    peak = max(moments(step), key=lambda moment: moment.total + _overhead(step, moment))
    weights = FLOAT * step.counted.total
    whole = _whole_for_now(step) if step.divided_over > 1 else 0
    return TrainingMemory(
        weights=weights // step.divided_over + whole,
        gradients=peak.gradients // step.divided_over + whole,
        optimizer=(2 * weights - FLOAT * step.muon_parameters + peak.update) // step.divided_over,
        weight_copies=peak.weight_copies,
        activations=peak.activations,
        logits=peak.logits,
        overhead=_overhead(step, peak),
        peak_phase=peak.phase,
    )


def largest_micro_batch(step: Step, budget_bytes: int) -> int:
    """The most sequences a forward pass may have within `budget_bytes`; 0 where not even one fits.

    Args:
        step: how it is trained; its own micro-batch is not looked at.
        budget_bytes: `usable_bytes` turns a device's memory into a budget.
    """

    def fits(micro_batch: int) -> bool:
        return training_memory(replace(step, micro_batch=micro_batch)).total <= budget_bytes

    if not fits(1):
        return 0
    fitting, beyond = 1, 2
    while fits(beyond):
        fitting, beyond = beyond, 2 * beyond
    while beyond - fitting > 1:
        middle = (fitting + beyond) // 2
        fitting, beyond = (middle, beyond) if fits(middle) else (fitting, middle)
    return fitting


def usable_bytes(device_bytes: int) -> int:
    """What a training may count on of a device's memory: all but 5 %, and all but 600 MiB at least.

    The driver keeps some to itself: out-of-memory messages show 7.75 of 8 GiB (RTX 4060), 10.76 of 11
    (RTX 2080 Ti), 15.78 of 16 (V100), 23.68 of 24, 39.56 of 40 (A100) and 79.19 of 80 (H100), 1 to 3 %.
    A desktop takes about 0.3 GiB (the 4060's message), and blocks that the allocator holds without
    using them were 0.1 to 1.2 % in the same messages.
    """
    return max(0, device_bytes - max(device_bytes // 20, 600 * MIB))


def _whole_for_now(step: Step) -> int:
    """Bytes of a divided model that are whole at one time, of weights as of gradients.

    The tables and the last norm, which belong to no block, from the forward pass to the end of the backward
    one, and two blocks: the one in use and the next, which is fetched meanwhile. Read off how `fully_shard`
    works (torch 2.13), not measured.
    """
    outside = step.counted.total - step.counted.blocks
    return FLOAT * (outside + 2 * step.counted.blocks // step.shape.n_layer)


def _overhead(step: Step, moment: Moment) -> int:
    """What the process holds beside the tensors of a moment."""
    if step.device_kind == "cuda":
        return CUDA_OVERHEAD
    process = PROCESS + (COMPILER if step.compiled else CHECKPOINTING if step.checkpointing else 0)
    if step.gpu_libraries:
        process += GPU_LIBRARIES + (TRITON if step.compiled or step.checkpointing else 0)
    if step.device_kind == "mps":
        return process
    if step.own_kernels and step.shape.keeps_freed_memory:
        passing = moment.activations + moment.logits + moment.gradients - standing_gradients(step)
        return process + int(passing * KEPT_GAPS[min(step.accumulation, 2)])
    return process + int(_heap_bytes(step, moment) * HEAP_GAPS[min(step.accumulation, 2)])


def _heap_bytes(step: Step, moment: Moment) -> int:
    """Bytes of tensors that malloc keeps in its heap: all but a token table or logits that are too large.

    Logits and their gradients, three tensors at most, count until they are too large and no further after.
    Where freed memory is given back, activations count until one copy of the residual stream is large enough
    for that and no further after, and blocks' weights by the size of their smallest matrix. So a larger
    micro-batch never needs less.
    """
    if step.shape.saves_memory:
        stream = FLOAT * step.channels
        activations = moment.activations * min(stream, GIVEN_BACK) // stream
        small = FLOAT * step.shape.n_embd**2 < GIVEN_BACK
        return activations + (3 * FLOAT * step.counted.blocks if small else 0)
    tensors = 3 * FLOAT * step.counted.total + moment.total
    heap = tensors - moment.logits + min(moment.logits, 3 * OWN_MAPPING)
    if FLOAT * step.counted.token_embedding >= OWN_MAPPING:
        heap -= 3 * FLOAT * step.counted.token_embedding
    return heap

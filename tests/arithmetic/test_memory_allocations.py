"""Predicted memory against every allocation of real steps on this CPU.

torch's tracker (test_memory_reference.py) sees the results of operations. What an operation takes for itself
and lets go again, as a CPU does to add tensors of two dtypes, only the allocator sees, whose calls torch's
profiler notes. Our own kernels really run where there is a compiler for them. A CPU without bfloat16 makes
the same tensors and takes longer.
"""

from dataclasses import replace

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from gptwright.arithmetic.memory import training_memory
from gptwright.arithmetic.shape import ModelShape
from gptwright.arithmetic.step import FLOAT, Step
from gptwright.config.ingredients import MODERN
from gptwright.kernels.library import Kernels, Missing, load_kernels
from gptwright.model.gpt import GPT

SMALL = ModelShape(
    n_layer=2,
    n_head=4,
    n_embd=256,
    block_size=256,
    vocab_size=65,
    bias=False,
    tie_weights=True,
    dropout=0.0,
    kernels=True,
)
SHORT = replace(SMALL, block_size=64)
WORDS = replace(SHORT, vocab_size=8000)
CHUNKS = replace(WORDS, block_size=128, loss_chunk=64)
# shape, micro-batch, accumulation
CASES = [
    (SHORT, 12, 1),
    (SHORT, 12, 2),
    (replace(SMALL, block_size=300), 4, 2),
    (WORDS, 2, 1),
    (replace(SHORT, bias=True, tie_weights=False), 12, 1),
    (replace(SMALL, bias=True), 4, 1),
    (replace(SMALL, tie_weights=False, ingredients=MODERN), 4, 1),
    (replace(SMALL, n_layer=3, gradient_checkpointing=True), 4, 1),
    (replace(SMALL, block_size=300, dropout=0.2), 4, 1),
    (replace(SHORT, dropout=0.2), 12, 1),
    (CHUNKS, 2, 1),
    (replace(CHUNKS, gradient_checkpointing=True), 2, 2),
    (replace(CHUNKS, kernels=False), 2, 1),
]


def allocated_peak(shape: ModelShape, micro_batch: int, accumulation: int, dtype: str) -> int:
    """Bytes that torch has handed out at the peak of a step, the second, which has its moments."""
    model = GPT(shape)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    tokens_BT = torch.zeros(micro_batch, shape.block_size, dtype=torch.long)

    def step() -> None:
        for _ in range(accumulation):
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == "bfloat16"):
                loss = model(tokens_BT, tokens_BT) / accumulation
            loss.backward()
            del loss
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    step()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        step()
    found = profiled.profiler
    assert found is not None
    assert found.kineto_results is not None
    events = [event for event in found.kineto_results.events() if event.name() == "[memory]"]
    alive = peak = 3 * FLOAT * shape.count_parameters().total
    for event in sorted(events, key=lambda event: event.start_ns()):
        alive += event.nbytes()
        peak = max(peak, alive)
    return peak


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize(("shape", "micro_batch", "accumulation"), CASES)
def test_within_a_percent_of_what_torch_hands_out(
    shape: ModelShape, micro_batch: int, accumulation: int, dtype: str
) -> None:
    kernels = load_kernels(getattr(torch, dtype))
    if shape.kernels and isinstance(kernels, Missing):
        pytest.skip(kernels.reason)
    if shape.kernels and isinstance(kernels, Kernels) and not kernels.multiplies:
        pytest.skip("torch multiplies here, with copies of weights that are not counted")
    step = Step(
        shape=shape,
        micro_batch=micro_batch,
        dtype=dtype,
        compiled=False,
        accumulation=accumulation,
        device_kind="cpu",
    )
    predicted = training_memory(step)
    tensors = predicted.total - predicted.overhead
    assert tensors == pytest.approx(allocated_peak(shape, micro_batch, accumulation, dtype), rel=0.01), (
        predicted
    )

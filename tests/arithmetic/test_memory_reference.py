"""Predicted memory against torch's own tracker on fake tensors, and which tensors a compiled graph keeps.

The tracker counts tensors, so the prediction's overhead is left out. Asked for is 5 %; both sum the same
tensors, so what is asserted is 1.5 %. The rest is weight gradients under way, which are summed roughly.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, fx
from torch._dynamo.backends.common import aot_autograd
from torch._functorch._aot_autograd.utils import make_boxed_func
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._inductor.decomposition import select_decomp_table

from gptwright.arithmetic.activations import head_input_bytes, kept_bytes
from gptwright.arithmetic.memory import training_memory
from gptwright.arithmetic.shape import ModelShape
from gptwright.arithmetic.step import Step
from gptwright.config.ingredients import GPT2, MODERN, Ingredients
from gptwright.model.gpt import GPT
from tests.arithmetic.fake_training import tracked_peak
from tests.conftest import LONG


@dataclass(frozen=True, slots=True)
class Case:
    """One configuration; the shape as layers, heads, width, context, vocabulary."""

    shape: tuple[int, int, int, int, int]
    micro_batch: int
    dtype: str = "bfloat16"
    accumulation: int = 1
    tied: bool = True
    bias: bool = False
    checkpointing: bool = False
    flash: bool = True
    fused_optimizer: bool = True
    dropout: float = 0.0
    gpu: bool = True
    made_of: Ingredients = GPT2
    chunk: int = 0
    float32_attention: bool = False
    kernels: bool = False

    @property
    def model_shape(self) -> ModelShape:
        n_layer, n_head, n_embd, block_size, vocab_size = self.shape
        return ModelShape(
            n_layer=n_layer,
            n_head=n_head,
            n_embd=n_embd,
            block_size=block_size,
            vocab_size=vocab_size,
            bias=self.bias,
            tie_weights=self.tied,
            dropout=self.dropout,
            ingredients=self.made_of,
            loss_chunk=self.chunk,
            gradient_checkpointing=self.checkpointing,
            float32_attention=self.float32_attention,
            kernels=self.kernels,
        )


QUICK = [
    Case((4, 4, 128, 64, 65), 12, "float32"),
    Case((2, 6, 384, 256, 65), 64, accumulation=2),
    Case((2, 12, 768, 1024, 50304), 12, accumulation=2),
    Case((2, 12, 768, 1024, 50304), 4, "float16", tied=False, bias=True),
    Case((2, 16, 1024, 4096, 1000), 1, "float32", accumulation=2),
    Case((2, 16, 1600, 64, 50304), 1, accumulation=2),
    Case((3, 12, 768, 1024, 65), 8, checkpointing=True),
    Case((1, 12, 768, 1024, 65), 4, flash=False),
    Case((4, 4, 128, 64, 65), 12, "float32", tied=False, gpu=False, made_of=MODERN),
    Case((3, 12, 768, 1024, 50304), 4, tied=False, accumulation=2, made_of=MODERN),
    Case((2, 12, 768, 1024, 50304), 12, accumulation=2, chunk=1024),
    Case((4, 4, 256, 256, 65), 4, gpu=False, float32_attention=True),
    Case((3, 4, 256, 256, 65), 4, "float32", dropout=0.1, gpu=False),
]
# A CPU's steps in bfloat16 with our own kernels.
KERNELS = [
    Case((4, 4, 128, 64, 65), 12, kernels=True, gpu=False),
    Case((6, 6, 384, 256, 65), 16, kernels=True, gpu=False),
    Case((6, 6, 384, 256, 65), 16, accumulation=2, kernels=True, gpu=False),
    Case((4, 4, 256, 300, 65), 4, accumulation=2, kernels=True, gpu=False),
    Case((12, 12, 768, 1024, 50304), 1, kernels=True, gpu=False),
    Case((3, 12, 768, 1024, 50304), 4, accumulation=2, kernels=True, gpu=False),
    Case((3, 12, 768, 1024, 50304), 4, tied=False, bias=True, kernels=True, gpu=False),
    Case((6, 6, 384, 256, 65), 16, tied=False, kernels=True, gpu=False, made_of=MODERN),
    Case((4, 4, 256, 1024, 65), 4, accumulation=2, tied=False, kernels=True, gpu=False, made_of=MODERN),
    Case((6, 6, 384, 256, 65), 16, "float32", kernels=True, gpu=False),
    Case((3, 12, 768, 1024, 50304), 4, "float32", accumulation=2, kernels=True, gpu=False),
    Case((6, 6, 384, 256, 65), 16, "float32", dropout=0.2, kernels=True, gpu=False),
    Case((4, 12, 768, 1024, 65), 4, "float32", checkpointing=True, kernels=True, gpu=False),
    Case((4, 12, 768, 1024, 65), 4, checkpointing=True, kernels=True, gpu=False),
    Case((6, 12, 768, 1024, 50304), 4, accumulation=2, checkpointing=True, kernels=True, gpu=False),
    # few tokens: weights, gradients and their tables decide
    Case((3, 8, 1024, 8, 64), 1, kernels=True, gpu=False),
    Case((3, 8, 1024, 64, 1000), 1, accumulation=2, kernels=True, gpu=False),
    Case((2, 16, 1600, 64, 50304), 1, kernels=True, gpu=False),
    Case((3, 16, 1600, 64, 50304), 1, tied=False, kernels=True, gpu=False),
]
THOROUGH = [
    # GPT-2's sizes and nanoGPT's own configs
    Case((4, 4, 128, 64, 65), 12),
    Case((6, 6, 384, 256, 65), 64),
    Case((6, 6, 384, 256, 65), 64, "float32", accumulation=2),
    Case((12, 12, 768, 1024, 50304), 12, accumulation=2),
    Case((12, 12, 768, 1024, 50304), 1, "float32"),
    Case((24, 16, 1024, 1024, 50304), 4),
    Case((6, 16, 2048, 1024, 50304), 1, "float32", accumulation=2),
    Case((4, 24, 3072, 512, 50304), 2, accumulation=2),
    # vocabularies and contexts
    Case((3, 12, 768, 1024, 50304), 4, "float16", accumulation=2),
    Case((3, 12, 768, 1024, 50304), 4, tied=False, bias=True, accumulation=2),
    Case((2, 8, 512, 8192, 32000), 1, accumulation=2),
    Case((2, 16, 1024, 2048, 100277), 2, "float16", tied=False, accumulation=2),
    Case((1, 12, 768, 512, 200_000), 4),
    Case((2, 1, 64, 512, 256), 32, "float32"),
    Case((3, 8, 256, 4096, 256), 2, bias=True),
    # few tokens: weights, gradients and their tables decide
    Case((4, 16, 1600, 64, 50304), 1),
    Case((3, 16, 1600, 64, 50304), 1, "float32", tied=False),
    Case((3, 16, 1600, 256, 50304), 1, "float32", tied=False, bias=True, accumulation=2),
    Case((2, 8, 2048, 128, 32000), 1, bias=True),
    Case((3, 8, 1024, 8, 64), 1, accumulation=2),
    # activation checkpointing
    Case((6, 12, 768, 1024, 50304), 12, accumulation=2, checkpointing=True),
    Case((4, 12, 768, 1024, 65), 8, "float32", checkpointing=True),
    Case((4, 12, 768, 1024, 65), 1, checkpointing=True),
    Case((4, 12, 768, 2048, 8000), 4, "float16", tied=False, bias=True, accumulation=2, checkpointing=True),
    Case((3, 16, 2048, 1024, 50304), 1, checkpointing=True),
    # attention written out
    Case((2, 12, 768, 1024, 65), 4, "float32", accumulation=2, flash=False),
    Case((3, 4, 256, 512, 8000), 8, flash=False),
    Case((3, 4, 256, 512, 65), 8, checkpointing=True, flash=False),
    # dropout
    Case((4, 6, 384, 256, 65), 32, dropout=0.2),
    Case((4, 6, 384, 256, 65), 32, "float32", accumulation=2, dropout=0.2),
    Case((2, 12, 768, 1024, 50304), 4, dropout=0.1, checkpointing=True),
    # other ingredients
    Case((6, 6, 384, 256, 65), 16, "float32", tied=False, made_of=MODERN),
    Case((6, 6, 384, 256, 65), 16, tied=False, made_of=MODERN),
    Case((3, 12, 768, 1024, 50304), 4, made_of=Ingredients(rope=True, relu2=True)),
    Case((8, 4, 256, 256, 65), 4, flash=False, tied=False, made_of=MODERN),
    # attention alone in float32
    Case((8, 4, 256, 256, 65), 4, tied=False, made_of=MODERN, gpu=False, float32_attention=True),
    Case((8, 4, 256, 256, 65), 4, made_of=Ingredients(rope=True), gpu=False, float32_attention=True),
    Case((8, 4, 256, 256, 65), 4, dropout=0.1, gpu=False, float32_attention=True),
    Case((8, 4, 256, 256, 65), 4, flash=False, float32_attention=True),
    # an optimizer in several kernels
    Case((3, 8, 1024, 64, 1000), 1, "float32", fused_optimizer=False),
    Case((3, 8, 1024, 64, 1000), 1, accumulation=2, fused_optimizer=False),
    # the loss in chunks
    Case((12, 12, 768, 1024, 50304), 12, chunk=512),
    # (untied: the tracker's own hand on a tied table's gradient keeps torch from adding to it in place)
    Case((3, 12, 768, 1024, 50304), 1, "float32", tied=False, chunk=128),
    Case((3, 12, 768, 1024, 50304), 4, "float16", tied=False, chunk=4096),
    Case((3, 12, 768, 512, 50304), 8, "float32", tied=False, accumulation=2, chunk=256, gpu=False),
    # a CPU, where dropout is our own in float32, blocks of 128 queries, and keeps factors under autocast
    Case((3, 4, 256, 256, 8000), 4, "float32", gpu=False),
    Case((3, 4, 256, 64, 65), 8, "float32", dropout=0.1, gpu=False),
    Case((3, 4, 256, 300, 65), 4, "float32", dropout=0.1, gpu=False),
    Case((2, 12, 768, 1024, 65), 2, "float32", accumulation=2, dropout=0.1, gpu=False),
    Case((6, 6, 384, 256, 65), 16, "float32", tied=False, dropout=0.2, gpu=False, made_of=MODERN),
    Case((3, 4, 256, 512, 65), 4, "float32", dropout=0.1, gpu=False, checkpointing=True),
    Case((3, 4, 256, 256, 65), 4, dropout=0.1, gpu=False),
    Case((3, 8, 1024, 64, 1000), 1, "float32", fused_optimizer=False, gpu=False),
]


def assert_predicted(case: Case) -> None:
    tracked = tracked_peak(
        case.model_shape,
        micro_batch=case.micro_batch,
        dtype=case.dtype,
        accumulation=case.accumulation,
        flash=case.flash,
        fused_optimizer=case.fused_optimizer,
        gpu=case.gpu,
    )
    step = Step(
        shape=case.model_shape,
        micro_batch=case.micro_batch,
        dtype=case.dtype,
        compiled=False,
        accumulation=case.accumulation,
        device_kind="cuda" if case.gpu else "cpu",
        flash=case.flash,
        fused_optimizer=case.fused_optimizer,
    )
    predicted = training_memory(step)
    assert predicted.total - predicted.overhead == pytest.approx(tracked, rel=0.015), predicted


@pytest.mark.parametrize("case", QUICK)
def test_within_five_percent_of_torchs_tracker(case: Case) -> None:
    assert_predicted(case)


@pytest.mark.parametrize("case", KERNELS if LONG else KERNELS[::2])
def test_within_five_percent_of_torchs_tracker_with_our_own_kernels(case: Case) -> None:
    assert_predicted(case)


@pytest.mark.slow
@pytest.mark.parametrize("case", THOROUGH if LONG else THOROUGH[::3])
def test_within_five_percent_of_torchs_tracker_thoroughly(case: Case) -> None:
    assert_predicted(case)


def saved_by_compiled_graph(shape: ModelShape, micro_batch: int, dtype: str) -> int:
    """Bytes that the compiler's partition hands from the forward graph to the backward graph.

    Parameters and inputs are left out, and a view counts nothing beside what it looks at.
    """
    sizes: dict[int, int] = {}

    def as_it_is(graph: fx.GraphModule, example_inputs: Sequence[Any]) -> Any:
        return make_boxed_func(graph.forward)

    def note_saved(graph: fx.GraphModule, example_inputs: Sequence[Any]) -> Any:
        (output,) = (node for node in graph.graph.nodes if node.op == "output")
        for node in output.args[0]:
            value = node.meta.get("val") if isinstance(node, fx.Node) else None
            if isinstance(value, Tensor) and node.op != "placeholder":
                storage = value.untyped_storage()
                sizes[storage._cdata] = storage.nbytes()
        return make_boxed_func(graph.forward)

    backend = aot_autograd(
        fw_compiler=note_saved,
        bw_compiler=as_it_is,
        partition_fn=min_cut_rematerialization_partition,
        decompositions=select_decomp_table(),
    )
    model = GPT(shape)
    tokens_BT = torch.zeros(micro_batch, shape.block_size, dtype=torch.long)
    with torch.autocast("cpu", dtype=getattr(torch, dtype), enabled=dtype != "float32"):
        torch.compile(model, backend=backend)(tokens_BT, tokens_BT).backward()
    return sum(sizes.values())


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"] if LONG else ["bfloat16"])
def test_a_compiled_graph_keeps_what_eager_does_but_the_loss(dtype: str) -> None:
    shape = Case((2, 4, 256, 128, 5000), 4).model_shape
    step = Step(shape=shape, micro_batch=4, dtype=dtype, compiled=True, accumulation=1)
    memory = training_memory(step)
    logits = step.matmul_bytes * step.logits  # before the gradient comes beside them
    copies = step.matmul_bytes * step.counted.matmul if step.autocast else 0
    kept = kept_bytes(step, shape.n_layer) + head_input_bytes(step) + logits + copies
    assert saved_by_compiled_graph(shape, 4, dtype) == pytest.approx(kept, rel=0.02)
    assert memory.logits in (0, 2 * logits)

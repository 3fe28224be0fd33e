"""The FLOP convention against published figures and against torch counting the products it does."""

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from gptwright.arithmetic.flops import flops_per_token, mfu
from gptwright.arithmetic.parameters import count_parameters
from gptwright.arithmetic.shape import ModelShape
from gptwright.model.gpt import GPT


def test_gpt2_124m_takes_854_6_mflop_a_token() -> None:
    counted = count_parameters(
        n_layer=12, n_embd=768, block_size=1024, vocab_size=50257, bias=False, tie_weights=True
    )
    assert counted.in_flops == 123_551_232
    flops = flops_per_token(parameters_in_flops=counted.in_flops, n_layer=12, n_embd=768, block_size=1024)
    assert flops == 6 * 123_551_232 + 12 * 12 * 768 * 1024
    assert flops / 1e6 == pytest.approx(854.6, abs=0.05)


def test_mfu_of_a_logged_run() -> None:
    # 524,288 tokens in 9.340 s on 12 × 768 with V 50304: nanoGPT printed 15.37 % of an A100's 312 TFLOP/s.
    counted = count_parameters(
        n_layer=12, n_embd=768, block_size=1024, vocab_size=50304, bias=False, tie_weights=True
    )
    flops = flops_per_token(parameters_in_flops=counted.in_flops, n_layer=12, n_embd=768, block_size=1024)
    rate = 524_288 / 9.340
    assert mfu(flops_per_token=flops, tokens_per_second=rate, peak_flops=312e12) == pytest.approx(
        0.1538, abs=2e-4
    )
    assert mfu(flops_per_token=2.0, tokens_per_second=3.0, peak_flops=12.0) == 0.5


@pytest.mark.parametrize("tied", [True, False])
def test_torch_counts_the_same_products(*, tied: bool) -> None:
    shape = ModelShape(
        n_layer=3,
        n_head=4,
        n_embd=32,
        block_size=16,
        vocab_size=50,
        bias=False,
        tie_weights=tied,
        dropout=0.0,
    )
    model = GPT(shape)
    ids_BT = torch.zeros((2, 16), dtype=torch.long)
    # The written-out attention does 4·T·C a layer and token forward; fused ones repeat some of it backward.
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        model(ids_BT, ids_BT).backward()
    counted = count_parameters(
        n_layer=3, n_embd=32, block_size=16, vocab_size=50, bias=False, tie_weights=tied
    )
    # The convention counts the layer norms' weights as if they multiplied; torch counts products alone.
    products = counted.in_flops - counted.not_decayed
    wanted = flops_per_token(parameters_in_flops=products, n_layer=3, n_embd=32, block_size=16)
    assert counter.get_total_flops() == wanted * ids_BT.numel()

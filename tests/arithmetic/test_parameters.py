"""Counted against models that are really built, and against the numbers nanoGPT prints."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gptwright import units
from gptwright.arithmetic.parameters import ParameterCount, count_parameters
from gptwright.arithmetic.shape import ModelShape
from gptwright.config.ingredients import MODERN, Ingredients
from gptwright.model.gpt import GPT


def count(
    n_layer: int,
    n_embd: int,
    block_size: int,
    vocab_size: int,
    *,
    bias: bool = False,
    tie_weights: bool = True,
) -> ParameterCount:
    return count_parameters(
        n_layer=n_layer,
        n_embd=n_embd,
        block_size=block_size,
        vocab_size=vocab_size,
        bias=bias,
        tie_weights=tie_weights,
    )


@settings(max_examples=200, deadline=None)
@given(
    n_layer=st.integers(1, 5),
    n_head=st.integers(1, 6),
    head_size=st.integers(1, 50),
    block_size=st.integers(1, 2048),
    vocab_size=st.integers(1, 60000),
    bias=st.booleans(),
    tied=st.booleans(),
    made_of=st.builds(Ingredients, **dict.fromkeys(MODERN.used(), st.booleans())),
)
def test_the_count_is_that_of_the_model_built(
    *,
    n_layer: int,
    n_head: int,
    head_size: int,
    block_size: int,
    vocab_size: int,
    bias: bool,
    tied: bool,
    made_of: Ingredients,
) -> None:
    shape = ModelShape(
        n_layer=n_layer,
        n_head=n_head,
        n_embd=n_head * head_size,
        block_size=block_size,
        vocab_size=vocab_size,
        bias=bias,
        tie_weights=tied,
        dropout=0.0,
        ingredients=made_of,
    )
    with torch.device("meta"):  # shapes without memory
        model = GPT(shape)
    counted = shape.count_parameters()
    sizes = {name: parameter.numel() for name, parameter in model.named_parameters()}

    def held(*starts: str) -> int:
        return sum(size for name, size in sizes.items() if name.startswith(starts))

    assert counted.total == sum(sizes.values())
    assert counted.token_embedding == held("transformer.wte")
    assert counted.position_embedding == held("transformer.wpe")
    assert counted.blocks == held("transformer.h.")
    assert counted.final_norm == held("transformer.ln_f")
    assert counted.smear == held("smear")
    assert counted.head == held("lm_head")
    assert counted.nanogpt == counted.total - held("transformer.wpe")
    decayed = sum(parameter.numel() for parameter in model.parameters() if parameter.dim() >= 2)
    assert (counted.decayed, counted.not_decayed) == (decayed, counted.total - decayed)


@pytest.mark.parametrize(
    ("counted", "printed", "formula"),
    [
        # 12·L·C² in blocks + V·C in the vocabulary + (2·L + 1)·C in layer norms
        (count(12, 384, 1024, 50304), "40.56M", 12 * 12 * 384**2 + 50304 * 384 + 25 * 384),
        (count(12, 768, 1024, 50304), "123.59M", 12 * 12 * 768**2 + 50304 * 768 + 25 * 768),
        (count(6, 384, 256, 65), "10.65M", 12 * 6 * 384**2 + 65 * 384 + 13 * 384),
        (count(4, 128, 64, 65), "0.80M", 12 * 4 * 128**2 + 65 * 128 + 9 * 128),
        # with biases each block has 11·C more and the last norm C: OpenAI's 124,439,808 without its positions
        (count(12, 768, 1024, 50257, bias=True), "123.65M", 124_439_808 - 1024 * 768),
    ],
)
def test_nanogpts_printed_counts(counted: ParameterCount, printed: str, formula: int) -> None:
    assert counted.nanogpt == formula
    assert units.count(counted.nanogpt) == printed


def test_what_nanogpt_decays_in_the_shakespeare_model() -> None:
    counted = count(4, 128, 64, 65)
    assert (counted.decayed, counted.not_decayed) == (802_944, 1_152)


def test_an_untied_head_counts_once_in_flops() -> None:
    tied, untied = count(3, 96, 64, 1000), count(3, 96, 64, 1000, tie_weights=False)
    assert untied.total == tied.total + 1000 * 96
    assert untied.in_flops == tied.in_flops == tied.nanogpt

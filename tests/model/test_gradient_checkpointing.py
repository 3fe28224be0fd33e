"""A checkpointed block is computed again and comes out the same: every gradient, to the last bit."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from gptwright.config.ingredients import GPT2, MODERN, Ingredients
from gptwright.model.gpt import GPT
from tests.model.models import random_ids, shape_of, vivid_model


def gradients_of(model: GPT, *, dtype: torch.dtype | None = None) -> list[Tensor]:
    tokens = random_ids((3, 16), 23)
    torch.manual_seed(5)  # of dropout
    with torch.autocast("cpu", dtype=dtype or torch.bfloat16, enabled=dtype is not None):
        model(tokens, tokens.roll(-1, 1)).backward()
    return [parameter.grad for parameter in model.parameters() if parameter.grad is not None]


@pytest.mark.parametrize("ingredients", [GPT2, MODERN])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("dtype", [None, torch.bfloat16])
def test_gradients_are_the_same_bits(
    ingredients: Ingredients, dropout: float, dtype: torch.dtype | None
) -> None:
    shape = shape_of(n_layer=3, ingredients=ingredients, dropout=dropout)
    kept = gradients_of(vivid_model(shape), dtype=dtype)
    again = gradients_of(vivid_model(replace(shape, gradient_checkpointing=True)), dtype=dtype)
    assert len(kept) == len(again) > 20
    assert all(torch.equal(a, b) for a, b in zip(kept, again, strict=True))


@pytest.mark.slow
@pytest.mark.usefixtures("captured")
def test_compiled_they_are_the_same_to_rounding() -> None:
    shape = shape_of(gradient_checkpointing=True)
    model = vivid_model(shape)
    tokens = random_ids((3, 16), 23)
    expected = gradients_of(vivid_model(shape))
    torch._dynamo.reset()
    model.compiled()(tokens, tokens.roll(-1, 1)).backward()  # type: ignore[no-untyped-call]
    for parameter, gradient in zip(model.parameters(), expected, strict=True):
        assert parameter.grad is not None
        assert torch.allclose(parameter.grad, gradient, rtol=1e-4, atol=1e-6)


def test_a_tied_table_has_one_gradient_where_the_loss_is_in_chunks() -> None:
    """So `gptwright.arithmetic.moments` counts one table at the end of the backward pass, not three."""
    model = GPT(shape_of(loss_chunk=8))
    tokens = random_ids((2, 16), 23)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as seen:
        model(tokens, tokens).backward()
    table = list(model.lm_head.weight.shape)
    events = seen.events() or ()
    of_table = {event.name for event in events if event.input_shapes[:1] == [table]}
    assert "aten::index_add_" in of_table
    assert not of_table & {"aten::add", "aten::add_"}
    # That of the positions.
    assert [event.name for event in events].count("aten::embedding_dense_backward") == 1

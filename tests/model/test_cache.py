"""Rows of a cache: read together, continued together, each as if it were alone."""

import pytest
import torch

from gptwright.config.ingredients import GPT2, MODERN, Ingredients
from gptwright.model.cache import Beginnings, NextTokens
from tests.model.models import random_ids, shape_of, vivid_model

MADE_OF = [GPT2, MODERN, *(Ingredients(**{name: True}) for name in MODERN.used())]


@pytest.mark.parametrize("made_of", MADE_OF, ids=lambda made_of: "+".join(made_of.used()) or "gpt2")
@pytest.mark.parametrize("lengths", [[9, 9, 9], [9, 4, 1]])
def test_rows_continue_their_beginnings_as_whole_texts(made_of: Ingredients, lengths: list[int]) -> None:
    model = vivid_model(shape_of(ingredients=made_of, tie_weights=False)).eval()
    text = random_ids((3, 16), 23)
    cache = model.new_cache(3)
    with torch.inference_mode():
        whole = model.hidden(text)
        # Rows come in any order; what lies behind a shorter one is padding.
        order = [2, 0, 1]
        begun = model.hidden(
            text[order, : max(lengths)], Beginnings(cache, order, [lengths[r] for r in order])
        )
        for place, row in enumerate(order):
            torch.testing.assert_close(
                begun[place, : lengths[row]], whole[row, : lengths[row]], atol=1e-5, rtol=1e-5
            )
        for step in range(16 - max(lengths)):
            at = torch.tensor(lengths)[:, None] + step
            new = model.hidden(text.gather(1, at), NextTokens(cache, 3))
            torch.testing.assert_close(new[:, 0], whole[torch.arange(3), at[:, 0]], atol=1e-5, rtol=1e-5)
    assert cache.lengths == [length + 16 - max(lengths) for length in lengths]


@pytest.mark.parametrize("made_of", [GPT2, MODERN], ids=["gpt2", "modern"])
def test_a_row_that_moves_goes_on_and_a_cleared_one_begins_anew(made_of: Ingredients) -> None:
    model = vivid_model(shape_of(ingredients=made_of, tie_weights=False)).eval()
    text = random_ids((2, 16), 23)
    cache = model.new_cache(2)
    with torch.inference_mode():
        whole = model.hidden(text)
        model.hidden(text[:, :7], Beginnings(cache, [0, 1], [3, 7]))
        cache.move(1, 0)
        cache.clear(1)
        assert cache.lengths == [7, 0]
        new = model.hidden(torch.stack([text[1, 7:8], text[0, :1]]), NextTokens(cache, 2))
        torch.testing.assert_close(new[0, 0], whole[1, 7], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(new[1, 0], whole[0, 0], atol=1e-5, rtol=1e-5)
        alone = model.hidden(text[1:, 8:9], NextTokens(cache, 1))
        torch.testing.assert_close(alone[0, 0], whole[1, 8], atol=1e-5, rtol=1e-5)

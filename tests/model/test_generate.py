"""Windows that jump, draws that follow the probabilities, and a cache that changes nothing."""

from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gptwright.config.ingredients import GPT2, MODERN, Ingredients
from gptwright.errors import ConfigError, RunFailedError
from gptwright.model.drawing import SamplingOptions, next_token
from gptwright.model.generate import Batch, Stream, generate, window_start
from gptwright.model.gpt import GPT
from gptwright.model.linear import LEAST_WEIGHTS
from tests.conftest import LONG
from tests.model.models import random_ids, shape_of, vivid_model

PLAIN = SamplingOptions(temperature=1.0, top_k=None, top_p=None, seed=0)
LOGITS = torch.tensor([2.0, -1.0, 0.5, 1.5, -3.0, 0.0, 1.0, -0.5])


@pytest.mark.parametrize("kept", [0, -5])
def test_keeping_no_token_is_refused(kept: int) -> None:
    with pytest.raises(ConfigError, match=rf"top_k = {kept} is not a number from 1 up"):
        SamplingOptions(top_k=kept)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_logits_that_are_not_finite_are_the_models_failure(bad: float, temperature: float) -> None:
    logits = LOGITS.clone()
    logits[3] = bad
    options = SamplingOptions(temperature=temperature)
    with pytest.raises(RunFailedError, match=r"the largest logit of the model is (nan|inf)[\s\S]*checkpoint"):
        next_token(logits, options, torch.Generator())


@given(length=st.integers(1, 5000), block_size=st.integers(1, 1100))
def test_the_window_fits_and_keeps_half_a_block(length: int, block_size: int) -> None:
    start = window_start(length, block_size)
    context = length - start
    if length <= block_size:
        assert start == 0
    else:
        assert block_size / 2 <= context <= block_size
    assert 0 <= window_start(length + 1, block_size) - start <= max(1, block_size // 2)


@pytest.mark.parametrize(("block_size", "jumps"), [(16, 8), (7, 3), (2, 1), (1, 1)])
def test_the_window_moves_half_a_block_at_a_time(block_size: int, jumps: int) -> None:
    starts = [window_start(length, block_size) for length in range(1, 6 * block_size + 1)]
    moves = [
        (at, starts[at] - starts[at - 1]) for at in range(1, len(starts)) if starts[at] != starts[at - 1]
    ]
    assert moves == [(at, jumps) for at in range(block_size, 6 * block_size, jumps)]


def tokens_of(
    model: GPT, prompt: list[int], count: int, options: SamplingOptions, *, cached: bool = True
) -> list[int]:
    return list(islice(generate(model, prompt, options=options, cached=cached), count))


OPTIONS = [
    SamplingOptions(temperature=0),
    SamplingOptions(temperature=1.0, top_k=None, seed=1),
    SamplingOptions(temperature=0.7, top_k=5, seed=2),
    SamplingOptions(temperature=1.3, top_k=None, top_p=0.8, seed=3),
    SamplingOptions(temperature=1.0, top_k=9, top_p=0.9, seed=4),
]
# Every way of drawing meets every place in the window; the short form sees each way in two of them.
LENGTHS = [1, 11, 16, 17, 70]
DRAWN = [
    (options, length)
    for way, options in enumerate(OPTIONS)
    for place, length in enumerate(LENGTHS)
    if LONG or (place - way) % len(LENGTHS) < 2
]


@pytest.mark.parametrize(("options", "prompt_length"), DRAWN)
def test_the_cache_changes_no_token(options: SamplingOptions, prompt_length: int) -> None:
    made_of = MODERN if prompt_length % 2 else GPT2
    model = vivid_model(shape_of(tie_weights=False, ingredients=made_of), seed=prompt_length + 2).eval()
    prompt = random_ids((prompt_length,), 23).tolist()
    count = 3 * 16 + 9
    cached = tokens_of(model, prompt, count, options)
    assert cached == tokens_of(model, prompt, count, options, cached=False)
    assert len(set(cached)) > (3 if options.temperature else 1)


MADE_OF = [GPT2, MODERN, *(Ingredients(**{name: True}) for name in MODERN.used())]
# Those below, at and above the block of 16; two alike, and one that is another's beginning.
PROMPT_LENGTHS = [1, 16, 5, 5, 11, 17, 40, 2]


GREEDY, SAMPLED = SamplingOptions(temperature=0), SamplingOptions(temperature=1.0, top_k=None, seed=1)
TOP = SamplingOptions(temperature=0.9, top_k=9, top_p=0.9, seed=2)


# Each ingredient alone in one way of sampling, the two whole models in all.
@pytest.mark.parametrize(
    ("made_of", "options"),
    [(made_of, SAMPLED) for made_of in MADE_OF]
    + [(made_of, options) for made_of in (GPT2, MODERN) for options in (GREEDY, TOP)],
    ids=lambda value: "+".join(value.used()) or "gpt2" if isinstance(value, Ingredients) else "",
)
def test_the_batch_changes_no_token(made_of: Ingredients, options: SamplingOptions) -> None:
    model = vivid_model(shape_of(tie_weights=False, ingredients=made_of), seed=4).eval()
    prompts = [random_ids((length,), 23, seed=9).tolist() for length in PROMPT_LENGTHS]
    count = 16 + 9
    batch = Batch(model, rows=len(prompts))
    streams = [Stream(prompt, options) for prompt in prompts]
    for stream in streams:
        batch.join(stream)
    for _ in range(count):
        assert {id(stream) for stream, _ in batch.step()} == {id(stream) for stream in streams}
    alone = [prompt + tokens_of(model, prompt, count, options) for prompt in prompts]
    assert [stream.tokens for stream in streams] == alone
    uncached = [prompt + tokens_of(model, prompt, count, options, cached=False) for prompt in prompts]
    assert alone == uncached
    assert len(set(map(tuple, (text[-20:] for text in alone)))) > 3


@pytest.mark.parametrize("made_of", [GPT2, MODERN], ids=["gpt2", "modern"])
@pytest.mark.parametrize("cached", [True, False])
def test_who_comes_and_goes_changes_no_token(made_of: Ingredients, cached: bool) -> None:
    model = vivid_model(shape_of(tie_weights=False, ingredients=made_of), seed=5).eval()
    options = [
        SamplingOptions(temperature=temperature, seed=seed) for seed, temperature in enumerate((1, 0.5, 0))
    ]
    waiting = [
        (Stream(random_ids((length,), 23, seed=length).tolist(), options[length % 3]), length)
        for length in (3, 21, 1, 14, 8, 2, 30, 1, 9)
    ]
    begun = []
    batch = Batch(model, rows=3, cached=cached)
    remaining: dict[int, int] = {}
    while waiting or batch.streams:
        while waiting and len(batch.streams) < 3:
            stream, length = waiting.pop(0)
            begun.append((stream, length))
            batch.join(stream)
            remaining[id(stream)] = 5 + 7 * (length % 4)
        for stream, token in batch.step():
            assert stream.tokens[-1] == token
            remaining[id(stream)] -= 1
            if remaining[id(stream)] == 0:
                batch.leave(stream)
    for stream, length in begun:
        prompt = random_ids((length,), 23, seed=length).tolist()
        assert stream.tokens == prompt + tokens_of(model, prompt, 5 + 7 * (length % 4), options[length % 3])


def test_a_cache_of_just_what_is_needed_is_enough() -> None:
    model = vivid_model(shape_of(block_size=64)).eval()
    batch = Batch(model, rows=1, capacity=12)
    batch.join(Stream([1, 2, 3], SamplingOptions(seed=3)))
    tokens = [token for _ in range(9) for _, token in batch.step()]
    assert tokens == tokens_of(model, [1, 2, 3], 9, SamplingOptions(seed=3))


def test_each_token_comes_from_the_window_before_it() -> None:
    model = vivid_model(shape_of()).eval()
    text = random_ids((5,), 23).tolist()
    for token in tokens_of(model, text, 60, SamplingOptions(temperature=0)):
        window = text[window_start(len(text), 16) :]
        guesses = torch.tensor([[*window[1:], guess] for guess in range(23)])
        with torch.no_grad():
            # All continuations share what came before, so the lowest loss is the likeliest one's.
            losses = model(torch.tensor([window] * 23), guesses, per_window=True)
        assert token == int(losses.argmin())
        text.append(token)


def test_the_shared_products_of_a_wide_model_change_no_token_either() -> None:
    torch.manual_seed(0)
    shape = shape_of(n_layer=1, n_head=4, n_embd=256, block_size=8, vocab_size=1001)
    assert LEAST_WEIGHTS < 3 * 256 * 256
    model = GPT(shape).eval()
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        cached = tokens_of(model, [0], 15, SamplingOptions(seed=5))
        assert cached == tokens_of(model, [0], 15, SamplingOptions(seed=5), cached=False)
        batch = Batch(model, rows=3)
        streams = [Stream(prompt, SamplingOptions(seed=5)) for prompt in ([0], [1, 2], [3] * 9)]
        for stream in streams:
            batch.join(stream)
        for _ in range(15):
            batch.step()
        assert streams[0].tokens == [0, *cached]
        assert streams[2].tokens[9:] == tokens_of(model, [3] * 9, 15, SamplingOptions(seed=5))
    finally:
        torch.set_num_threads(threads)
    assert len(set(cached)) > 10


def test_the_seed_decides() -> None:
    model = vivid_model(shape_of()).eval()
    torch.manual_seed(1)
    first = tokens_of(model, [3], 40, SamplingOptions(seed=8))
    torch.manual_seed(2)
    assert tokens_of(model, [3], 40, SamplingOptions(seed=8)) == first
    assert tokens_of(model, [3], 40, SamplingOptions(seed=9)) != first


def test_generation_leaves_the_global_generator_alone() -> None:
    model = vivid_model(shape_of()).eval()
    torch.manual_seed(1)
    before = torch.get_rng_state()
    tokens_of(model, [3], 5, SamplingOptions())
    assert torch.equal(torch.get_rng_state(), before)


def draws(options: SamplingOptions, count: int = 3000) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    generator = torch.Generator().manual_seed(options.seed)
    ids = [next_token(LOGITS, options, generator) for _ in range(count)]
    return np.bincount(ids, minlength=len(LOGITS))


def softmax(logits: torch.Tensor) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    weights = np.exp(logits.double().numpy())
    probabilities: np.ndarray[tuple[int], np.dtype[np.float64]] = weights / weights.sum()
    return probabilities


# In order of likelihood LOGITS are the ids 0, 3, 6, 2, 5, 7, 1, 4; at temperature 1 the first three have
# 0.85 of the probability and the first two 0.67.
@pytest.mark.parametrize(
    ("options", "temperature", "kept"),
    [
        ({}, 1.0, range(8)),
        ({"temperature": 0.5}, 0.5, range(8)),
        ({"temperature": 2.0}, 2.0, range(8)),
        ({"top_k": 3}, 1.0, [0, 3, 6]),
        ({"top_k": 8}, 1.0, range(8)),
        ({"top_k": 100}, 1.0, range(8)),
        ({"top_p": 1.0}, 1.0, range(8)),
        ({"top_p": 0.7}, 1.0, [0, 3, 6]),
        ({"top_p": 0.6}, 1.0, [0, 3]),
        ({"top_p": 0.6, "temperature": 2.0}, 2.0, [0, 3, 6]),
        ({"top_k": 3, "top_p": 0.95}, 1.0, [0, 3, 6]),
        ({"top_k": 3, "top_p": 0.75}, 1.0, [0, 3]),
    ],
)
def test_draws_follow_the_probabilities(options: dict[str, Any], temperature: float, kept: list[int]) -> None:
    wanted = np.zeros(len(LOGITS))
    kept = list(kept)
    wanted[kept] = softmax(LOGITS[kept] / temperature)
    counts = draws(SamplingOptions(**({"temperature": 1.0, "top_k": None, "seed": 11} | options)))
    assert counts[wanted == 0].sum() == 0
    expected = counts.sum() * wanted[kept]
    chi_square = ((counts[kept] - expected) ** 2 / expected).sum()
    # With a fixed seed this cannot flake; one right sampler in a thousand exceeds 24.3 (7 degrees).
    assert chi_square < 24.3


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 0.0},
        {"top_k": 1},
        {"top_p": 1e-6},
        {"top_p": 1e-300},
        {"temperature": 1e-3},
        {"temperature": 1e-40},
        {"temperature": 5e-324},
    ],
)
def test_greedy_in_every_way_is_the_likeliest(options: dict[str, Any]) -> None:
    chosen = SamplingOptions(**({"temperature": 1.0, "top_k": None} | options))
    logits = torch.randn(500, generator=torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(0)
    assert {next_token(logits, chosen, generator) for _ in range(50)} == {int(logits.argmax())}


@settings(deadline=None, max_examples=60)
@given(seed=st.integers(0, 2**32), top_k=st.integers(1, 60), top_p=st.floats(0.01, 1.0))
def test_a_draw_is_among_those_kept(seed: int, top_k: int, top_p: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(50, generator=generator) * 2
    order = np.argsort(-logits.numpy())[:top_k]
    before = np.concatenate([[0.0], np.cumsum(softmax(logits[order.tolist()]))[:-1]])
    nucleus = order[before < top_p + 1e-5]
    options = SamplingOptions(temperature=1.0, top_k=top_k, top_p=top_p)
    assert {next_token(logits, options, generator) for _ in range(20)} <= set(nucleus.tolist())


def test_low_precision_logits_are_drawn_in_full() -> None:
    generator = torch.Generator().manual_seed(0)
    assert next_token(LOGITS.bfloat16(), SamplingOptions(temperature=1.0, top_k=1), generator) == 0

"""Sizes out of real out-of-memory messages, and sizes that name nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gptwright.arithmetic.allocations import decode_allocation
from gptwright.arithmetic.shape import ModelShape

KIB, MIB, GIB = 2**10, 2**20, 2**30


def shape(
    n_layer: int = 12, n_head: int = 12, n_embd: int = 768, block_size: int = 1024, vocab_size: int = 50304
) -> ModelShape:
    return ModelShape(
        n_layer=n_layer,
        n_head=n_head,
        n_embd=n_embd,
        block_size=block_size,
        vocab_size=vocab_size,
        bias=False,
        tie_weights=True,
        dropout=0.0,
    )


GPT2 = shape()
NANOCHAT_D20 = shape(n_layer=20, n_head=10, n_embd=1280, block_size=2048, vocab_size=65536)


@pytest.mark.parametrize(
    ("said", "model", "micro_batch", "formula"),
    [
        (6.14 * GIB, GPT2, 32, "32·1024·50304·4"),  # nanoGPT#88
        (786.00 * MIB, GPT2, 4, "4·1024·50304·4"),  # nanoGPT#61
        (394.00 * MIB, GPT2, 2, "2·1024·50304·4"),  # nanoGPT#88: 393 MiB, asked for in steps of 2
        (1.54 * GIB, GPT2, 8, "8·1024·50304·4"),
        (8.00 * GIB, NANOCHAT_D20, 32, "32·2048·65536·2"),  # nanochat#443
    ],
)
def test_real_messages_name_the_logits(
    said: float, model: ModelShape, micro_batch: int, formula: str
) -> None:
    (tensor,) = decode_allocation(said, model, micro_batch=micro_batch)
    assert "logits" in tensor.name
    assert tensor.formula == formula
    assert str(tensor) == f"{tensor.name}: {formula}"


@pytest.mark.parametrize("said", [2.00 * MIB, 20.00 * MIB])
def test_a_shared_segment_names_no_tensor(said: float) -> None:
    # 5·1024·1024·4 bytes are 20 MiB exactly, and every tensor from 1 to 10 MiB is reported as 20 too.
    model = shape(n_head=8, n_embd=1024, block_size=1024)
    assert decode_allocation(said, model, micro_batch=5) == ()


def test_what_fits_nothing_is_not_explained() -> None:
    assert decode_allocation(172.00 * MIB, GPT2, micro_batch=12) == ()
    assert decode_allocation(6.14 * GIB, GPT2, micro_batch=12) == ()
    assert decode_allocation(0, GPT2, micro_batch=12) == ()


def test_other_tensors_than_the_logits() -> None:
    written_out = decode_allocation(8 * 12 * 1024**2 * 4, GPT2, micro_batch=8)
    assert [tensor.formula for tensor in written_out] == ["8·12·1024·1024·4"]
    table = decode_allocation(148.00 * MIB, GPT2, micro_batch=1)  # 147.4 MiB
    assert [tensor.formula for tensor in table] == ["50304·768·4"]
    # DefaultCPUAllocator: you tried to allocate 37748736 bytes
    hidden = decode_allocation(37748736, GPT2, micro_batch=3, dtype="float32")
    assert [tensor.formula for tensor in hidden] == ["3·1024·4·768·4"]


def test_float32_has_no_tensor_of_two_bytes() -> None:
    size = 16 * 1024 * 50304 * 2
    assert [t.formula for t in decode_allocation(size, GPT2, micro_batch=16)] == ["16·1024·50304·2"]
    assert decode_allocation(size, GPT2, micro_batch=16, dtype="float32") == ()


def test_the_closest_comes_first() -> None:
    model = shape(n_head=48, vocab_size=48 * 1024 + 1)  # scores and logits 64 KiB apart, within 0.01 GiB
    scores, logits = 16 * 48 * 1024**2 * 4, 16 * 1024 * model.vocab_size * 4
    for exact, other in ((scores, logits), (logits, scores)):
        found = decode_allocation(exact, model, micro_batch=16)
        assert [tensor.size_bytes for tensor in found] == [exact, other]


@given(
    micro_batch=st.integers(1, 64),
    block_size=st.integers(64, 4096),
    vocab_size=st.integers(1000, 100_000),
    step=st.sampled_from([2 * MIB, 1]),
)
def test_logits_are_found_as_torch_would_print_them(
    micro_batch: int, block_size: int, vocab_size: int, step: int
) -> None:
    model = shape(block_size=block_size, vocab_size=vocab_size)
    exact = micro_batch * block_size * vocab_size * 4
    if exact < 10 * MIB:
        return
    asked = -(-exact // step) * step
    unit = GIB if asked >= GIB else MIB
    printed = round(asked / unit, 2) * unit
    if printed == 20 * MIB:
        return
    found = decode_allocation(printed, model, micro_batch=micro_batch)
    assert exact in [tensor.size_bytes for tensor in found]

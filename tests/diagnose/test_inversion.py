"""A shape recovered from printed counts is the shape that was counted."""

import numpy as np
import pytest

from gptwright.arithmetic.shape import ModelShape
from gptwright.diagnose.inversion import shape_from_counts


def recovered(shape: ModelShape) -> ModelShape | None:
    count = shape.count_parameters()
    printed = round(count.nanogpt / 1e6, 2) * 1e6
    return shape_from_counts(
        decayed=count.decayed,
        not_decayed=count.not_decayed,
        printed=printed,
        rounding=5000,
        vocab_size=shape.vocab_size,
    )


def shape(**values: int | bool) -> ModelShape:
    return ModelShape(**{"n_head": 1, "tie_weights": True, "dropout": 0.0, **values})  # type: ignore[arg-type]


@pytest.mark.parametrize("bias", [False, True])
def test_gpt2_small(bias: bool) -> None:
    wanted = shape(n_layer=12, n_embd=768, block_size=1024, vocab_size=50304, bias=bias)
    assert recovered(wanted) == wanted


def test_random_shapes_come_back_or_nothing_is_said() -> None:
    rng = np.random.default_rng(5)
    found = 0
    for _ in range(60):
        wanted = shape(
            n_layer=int(rng.integers(2, 30)),
            n_embd=64 * int(rng.integers(2, 24)),
            block_size=int(2 ** rng.integers(6, 12)),
            vocab_size=int(rng.choice([65, 4096, 32000, 50304])),
            bias=bool(rng.integers(2)),
        )
        answer = recovered(wanted)
        assert answer in (wanted, None)
        found += answer is not None
    assert found >= 54


def test_counts_of_another_model_give_nothing() -> None:
    count = shape(n_layer=12, n_embd=768, block_size=1024, vocab_size=50304, bias=False).count_parameters()
    answer = shape_from_counts(
        decayed=count.decayed + 1,
        not_decayed=count.not_decayed,
        printed=count.nanogpt,
        rounding=5000,
        vocab_size=50304,
    )
    assert answer is None

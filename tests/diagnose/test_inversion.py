"""A shape recovered from printed counts is the shape that was counted."""

from pathlib import Path

import numpy as np
import pytest

from gptwright.arithmetic.shape import ModelShape
from gptwright.diagnose.inversion import shape_from_counts
from gptwright.diagnose.reading import read_run
from gptwright.diagnose.rules.agreement import config_mismatch
from gptwright.record.open_run import open_run


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


def test_a_stated_vocabulary_of_tokens_may_have_more_rows(tmp_path: Path) -> None:
    """nanoGPT pads GPT-2's 50,257 tokens to 50,304 rows: 123.59M is no contradiction to a stated 50,257."""
    lines = [f"iter {n}: loss {11 - n / 1000:.4f}, time 1000.00ms" for n in range(0, 600, 10)]
    (tmp_path / "log.txt").write_text("number of parameters: 123.59M\n" + "\n".join(lines) + "\n")
    shape = "n_layer = 12\nn_head = 12\nn_embd = 768\nblock_size = 1024\nbatch_size = 12\nbias = False\n"
    (tmp_path / "config.py").write_text(shape)
    (tmp_path / "facts.toml").write_text("vocab_size = 50257\n")
    reading = read_run(open_run(str(tmp_path)))
    assert reading.sizes.parameters is not None
    assert reading.sizes.parameters.number == 123_587_328
    assert not list(config_mismatch(reading))

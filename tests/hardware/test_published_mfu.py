"""The true MFU and tokens per second behind published logs, recomputed from what the logs print.

Each row is a run that somebody published: its shape, tokens and seconds of a step, the MFU as printed, which
is relative to an A100's 312 TFLOP/s whatever the card, and the card. The arithmetic that a plan and a
diagnosis use must give them from the table's peaks, within 2 %.
"""

from dataclasses import dataclass

import pytest

from gptwright.arithmetic.flops import mfu
from gptwright.arithmetic.shape import ModelShape
from gptwright.hardware.table import find_spec

A100_PEAK = 312e12


def _shape(n_layer: int, n_embd: int, block_size: int, vocab_size: int) -> ModelShape:
    """nanoGPT's model; the number of heads decides neither parameters nor FLOPs."""
    return ModelShape(
        n_layer=n_layer,
        n_head=n_embd // 64,
        n_embd=n_embd,
        block_size=block_size,
        vocab_size=vocab_size,
        bias=False,
        tie_weights=True,
        dropout=0.0,
    )


GPT2 = _shape(12, 768, 1024, 50304)
NARROW = _shape(12, 384, 1024, 50304)
CHARACTERS = _shape(6, 384, 256, 65)
WIDE = _shape(24, 1536, 1024, 50304)
OWN = _shape(12, 768, 512, 44902)


@dataclass(frozen=True)
class Log:
    """What a log prints, and what is true of it."""

    shape: ModelShape
    tokens: int
    seconds: float
    printed: float | None
    device: str
    dtype: str
    true_mfu: float
    tokens_per_second: float
    count: int = 1


LOGS = {
    # Public nanoGPT logs of an RTX 4070: a 124M model, a 40M one, and Shakespeare's characters.
    "rtx-4070-124m": Log(GPT2, 524_288, 9.340, 0.154, "RTX 4070", "bfloat16", 0.823, 56_134),
    "rtx-4070-40m": Log(NARROW, 524_288, 3.909, 0.129, "RTX 4070", "bfloat16", 0.69, 134_123),
    "rtx-4070-characters": Log(CHARACTERS, 16_384, 0.03322, 0.1107, "RTX 4070", "bfloat16", 0.601, 493_197),
    # The first of them, were it another card's.
    "as-4070-super": Log(GPT2, 524_288, 9.340, 0.154, "RTX 4070 SUPER", "bfloat16", 0.676, 56_134),
    "as-4070-ti": Log(GPT2, 524_288, 9.340, 0.154, "RTX 4070 Ti", "bfloat16", 0.598, 56_134),
    "as-4070-ti-super": Log(GPT2, 524_288, 9.340, 0.154, "RTX 4070 Ti SUPER", "bfloat16", 0.544, 56_134),
    "as-3090": Log(GPT2, 524_288, 9.340, 0.154, "RTX 3090", "bfloat16", 0.67, 56_134),
    # nanoGPT#182 and #179: the defaults on one RTX 4090.
    "rtx-4090-124m": Log(GPT2, 491_520, 4.63, 0.29, "RTX 4090", "bfloat16", 0.548, 106_160),
    # nanoGPT#178: Shakespeare with forty micro-batches on an A100.
    "a100-characters": Log(CHARACTERS, 655_360, 0.894, 0.1668, "A100", "bfloat16", 0.1668, 733_065),
    # nanoGPT#215: float16 on one V100.
    "v100-124m": Log(GPT2, 61_440, 1.097, 0.1534, "V100 SXM2", "float16", 0.383, 56_007),
    # nanoGPT#466: float32 on two TITAN Xp; the MFU is one card's.
    "titan-xp": Log(OWN, 262_144, 33.69, 0.0096, "TITAN Xp", "float32", 0.247, 7_781, count=2),
    # A public log of a 757M model on an MI300X: nanoGPT printed 113 %.
    "mi300x-757m": Log(WIDE, 32_768, 0.4544, None, "MI300X", "bfloat16", 0.276, 72_113),
}


@pytest.mark.parametrize("name", LOGS)
def test_a_log_is_read_as_what_it_means(name: str) -> None:
    log = LOGS[name]
    match = find_spec(log.device)
    assert match is not None
    rate = log.tokens / log.seconds
    flops = log.shape.flops_per_token()
    assert rate == pytest.approx(log.tokens_per_second, rel=0.02)
    one_device = rate / log.count
    true = mfu(flops_per_token=flops, tokens_per_second=one_device, peak_flops=match.spec.peaks[log.dtype])
    assert true == pytest.approx(log.true_mfu, rel=0.02)
    if log.printed is not None:
        printed = mfu(flops_per_token=flops, tokens_per_second=one_device, peak_flops=A100_PEAK)
        assert printed == pytest.approx(log.printed, rel=0.02)
        # The rule by which a reader turns what nanoGPT printed into what is true.
        assert log.printed * A100_PEAK / match.spec.peaks[log.dtype] == pytest.approx(log.true_mfu, rel=0.02)


def test_eight_a100_in_four_days() -> None:
    # nanoGPT's README: 600,000 steps of 491,520 tokens in about four days on eight A100: 29 % of them.
    rate = 600_000 * 491_520 / (4 * 86_400)
    assert rate == pytest.approx(853_000, rel=0.02)
    share = mfu(flops_per_token=GPT2.flops_per_token(), tokens_per_second=rate / 8, peak_flops=A100_PEAK)
    assert share == pytest.approx(0.29, rel=0.02)


def test_attention_counted_as_causal_takes_6_6_percent_off_gpt2() -> None:
    assert GPT2.causal_flops_per_token() == pytest.approx(797.9e6, rel=0.001)
    assert 1 - GPT2.causal_flops_per_token() / GPT2.flops_per_token() == pytest.approx(0.066, abs=0.001)


def test_a_logged_mfu_gives_the_tokens_of_a_step_back() -> None:
    # 113 % of an A100 in 454 ms is about 32 sequences of 1,024; 16.68 % in 894 ms is 40 × 64 × 256.
    tokens = 1.13 * A100_PEAK * 0.4544 / WIDE.flops_per_token()
    assert tokens == pytest.approx(32 * 1024, rel=0.03)
    tokens = 0.1668 * A100_PEAK * 0.894 / CHARACTERS.flops_per_token()
    assert tokens == pytest.approx(40 * 64 * 256, rel=0.01)


def test_a_k80_cannot_have_been_a_k80() -> None:
    # nanoGPT#234: 655,360 tokens in 4.574 s are more than twice what one die of the card has on paper.
    match = find_spec("Tesla K80")
    assert match is not None
    achieved = CHARACTERS.flops_per_token() * 655_360 / 4.574
    assert achieved == pytest.approx(10.2e12, rel=0.02)
    assert achieved > 2 * max(match.spec.peaks.values())

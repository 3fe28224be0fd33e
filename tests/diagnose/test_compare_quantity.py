"""Signs in the losses that two runs do not print the same quantity, and what is said of their pace."""

from collections.abc import Callable
from pathlib import Path

import pytest

from gptwright.diagnose.compare import Verdict
from tests.diagnose.test_compare import compared, run, timed

FACTS = 'device = "RTX 4090"\nvocab_size = 50304\nval_tokens = 10000000\ntrain_tokens = 10000000000\n'


def printed(change: Callable[[float], float], gap: float = 0.0) -> str:
    """A whole log from fresh weights on, its losses changed before they are printed."""
    lines = []
    for step in range(0, 6001, 500):
        loss = 3.3 + 900 / (step + 117)
        lines.append(f"step {step}: train loss {change(loss):.4f}, val loss {change(loss + gap):.4f}")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda loss: 2.0**loss if loss < 5 else 2.718281828**loss, "a prints nats and b prints perplexity"),
        (lambda loss: loss / 0.6931, "a prints nats and b prints bits"),
        (lambda loss: loss / 4, "b begins at 2.7481 and a at 10.9923, where fresh weights begin at 10.8258"),
    ],
)
def test_what_the_first_losses_show_is_no_difference_of_models(
    tmp_path: Path, change: Callable[[float], float], reason: str
) -> None:
    a = run(tmp_path / "a", loss=0, lines=printed(lambda loss: loss))
    found = compared(a, run(tmp_path / "b", loss=0, lines=printed(change), learning_rate=3e-4))
    assert found.verdict is Verdict.NOT_COMPARABLE
    assert found.reasons[0].startswith(reason)


@pytest.mark.parametrize(
    ("gap", "tokens", "verdict"),
    [
        (-1.2, 10_000_000_000, Verdict.NOT_COMPARABLE),
        # Between models the gap of one pair of texts moves by hundredths.
        (-0.06, 10_000_000_000, Verdict.B_BETTER),
        # After many passes the gap is what was memorized.
        (1.2, 10_000_000, Verdict.A_BETTER),
    ],
)
def test_a_gap_that_no_model_makes_is_of_other_texts(
    tmp_path: Path, gap: float, tokens: int, verdict: Verdict
) -> None:
    a = run(tmp_path / "a", loss=0, lines=printed(lambda loss: loss))
    b = run(tmp_path / "b", loss=0, lines=printed(lambda loss: loss, gap), weight_decay=0.2)
    for folder in (a, b):
        (folder / "facts.toml").write_text(FACTS.replace("10000000000", str(tokens)))
    found = compared(a, b)
    assert found.verdict is verdict
    assert any("the same texts" in reason for reason in found.reasons) == (verdict is Verdict.NOT_COMPARABLE)


def test_at_one_pace_equal_time_is_equal_tokens(tmp_path: Path) -> None:
    later = timed(2.0).replace("step 6000: train loss 3.6469, val loss 3.6469", "step 6000: val loss 3.6969")
    assert later != timed(2.0)
    a, b = (run(tmp_path / n, loss=0, lines=text) for n, text in (("a", timed(2.0)), ("b", later)))
    assert "equal time" not in compared(a, b).findings[0].message


def test_a_lead_within_the_noise_is_not_said_to_turn_round(tmp_path: Path) -> None:
    """Half as fast, b needs as long for each loss, and half as many tokens."""
    lines = ["tokens per iteration will be: 131,072", "number of parameters: 123.59M"]
    for step in range(0, 6001, 500):
        lines += [f"step {step}: train loss {3.5 + 900 / (2 * step + 125):.4f},"]
        lines[-1] += f" val loss {3.5 + 900 / (2 * step + 125):.4f}"
        lines += [f"iter {step + i}: loss 4.0, time 4000.00ms, mfu 20.00%" for i in (10, 20)]
    a = run(tmp_path / "a", loss=0, lines=timed(2.0))
    b = run(tmp_path / "b", loss=0, lines="\n".join(lines) + "\n", learning_rate=3e-4)
    found = compared(a, b)
    assert found.verdict is Verdict.B_BETTER
    assert "At equal time they are within the noise of each other." in found.findings[0].message


@pytest.mark.parametrize(("rows", "tokens"), [(50304, 5_600), (32000, 5_600), (50304, 11_000_000)])
def test_splits_that_cannot_be_one_text_are_not_summed(tmp_path: Path, rows: int, tokens: int) -> None:
    a, b = run(tmp_path / "a", loss=3.5), run(tmp_path / "b", loss=3.3)
    (b / "facts.toml").write_text(f"vocab_size = {rows}\nval_tokens = {tokens}\n")
    found = compared(a, b)
    assert found.verdict is Verdict.NOT_COMPARABLE
    assert "the loss of all of it" not in found.findings[0].message


def test_one_text_cut_by_two_tokenizers_is_summed(tmp_path: Path) -> None:
    a, b = run(tmp_path / "a", loss=3.5), run(tmp_path / "b", loss=3.3)
    (b / "facts.toml").write_text("vocab_size = 32000\nval_tokens = 11_000_000\n")
    assert "the loss of all of it" in compared(a, b).findings[0].message

"""Whether two losses are the same quantity where they are not printed in nats a token."""

from pathlib import Path

import pytest

from gptwright.diagnose.compare import Comparison, compare
from gptwright.diagnose.reading import Reading, read_run
from gptwright.record.open_run import open_run


def test_bits_a_byte_compare_models_of_other_vocabularies(tmp_path: Path) -> None:
    def run(name: str, end: float, vocabulary: int) -> Reading:
        folder = tmp_path / name
        folder.mkdir()
        lines = [f"Vocab size: {vocabulary:,}", "Total batch size 524,288 => gradient accumulation steps: 1"]
        lines += [f"Step {s:05d} | Validation bpb: {end + 900 / (s + 500):.6f}" for s in range(0, 5001, 250)]
        (folder / "log.txt").write_text("\n".join(lines) + "\n")
        return read_run(open_run(str(folder)))

    comparison = compare(run("a", 0.80, 65536), run("b", 0.76, 32768))
    assert comparison.comparable
    assert comparison.at_equal_tokens[-1].delta == pytest.approx(-0.04, abs=1e-6)
    assert "b is ahead" in comparison.findings[-1].message
    assert (
        "bits/byte in the mean of 11 evaluations from 1.31B to 2.62B tokens"
        in comparison.findings[-1].message
    )


def characters(folder: Path, line: str, facts: str = "") -> Reading:
    """A log of such lines, whose values fall from 2 to 1.5."""
    folder.mkdir()
    steps = range(250, 5001, 250)
    (folder / "log.txt").write_text("".join(line.format(s=s, v=1.5 + 125 / s) + "\n" for s in steps))
    (folder / "facts.toml").write_text(facts)
    return read_run(open_run(str(folder)))


BITS, NATS = (
    "step {s} | train bpc {v:.4f} | val bpc {v:.4f}",
    "step {s} | train loss {v:.4f} | val loss {v:.4f}",
)


@pytest.mark.parametrize(
    ("facts", "comparable", "reason"),
    [
        ("", True, "comparable only if the other's tokens are characters"),
        ("vocab_size = 65\n", True, "tokens per step of a are not known"),
        ("vocab_size = 50257\n", False, "a token's, which has several characters"),
    ],
)
def test_a_loss_of_a_character_beside_one_of_a_token(
    tmp_path: Path, facts: str, comparable: bool, reason: str
) -> None:
    a, b = characters(tmp_path / "a", BITS), characters(tmp_path / "b", NATS, facts)
    for found in (compare(a, b), compare(b, a)):
        assert found.comparable is comparable
        assert any(
            reason.replace(" of a ", name) in each for name in (" of a ", " of b ") for each in found.reasons
        )


def test_bits_a_character_are_nats_of_one_times_0693(tmp_path: Path) -> None:
    a, b = characters(tmp_path / "a", BITS), characters(tmp_path / "b", NATS, "vocab_size = 65\n")
    found: Comparison = compare(a, b)
    assert found.at_equal_tokens[-1].a == pytest.approx(0.6931 * found.at_equal_tokens[-1].b, rel=1e-4)


def test_bits_a_character_are_not_held_against_a_vocabulary_of_tokens(tmp_path: Path) -> None:
    """2 bits at the start are far below ln(50,257), which says nothing: they are a character's."""
    assert characters(tmp_path / "a", BITS, "vocab_size = 50257\n").vocab_size is None
    assert characters(tmp_path / "b", BITS, "vocab_size = 65\n").vocab_size is not None


def test_characters_and_tokens_of_one_text_are_held_against_each_other_as_a_whole(tmp_path: Path) -> None:
    """ "4.9 is three times as bad as 1.47": a token of GPT-2's has three characters of Shakespeare."""

    def run(name: str, dataset: str, width: int, end: float) -> Reading:
        folder = tmp_path / name
        folder.mkdir()
        lines = [
            f"step {step}: train loss {end:.4f}, val loss {end + 100 / (step + 100):.4f}"
            for step in range(0, 900, 50)
        ]
        (folder / "log.txt").write_text("\n".join(lines) + "\n")
        shape = "n_layer = 6\nn_head = 6\nbatch_size = 64\nblock_size = 256\n"
        (folder / "config.py").write_text(f"dataset = '{dataset}'\nn_embd = {width}\n{shape}")
        return read_run(open_run(str(folder)))

    found = compare(run("a", "shakespeare", 384, 4.8), run("b", "shakespeare_char", 384, 1.4))
    assert not found.comparable
    text = found.findings[0].message
    assert "the best of a, 4.9053 over 36,059 tokens, is 176,8" in text
    assert "that of b, 1.5053 over 111,540, is 167,901: b needs 5% less." in text
    other = compare(run("c", "openwebtext", 384, 3.8), run("d", "shakespeare_char", 384, 1.4))
    assert "same text" not in other.findings[0].message

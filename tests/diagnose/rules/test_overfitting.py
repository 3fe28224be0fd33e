"""Validation that rises: from its best, from the start, and in logs that do not show training."""

import math
from pathlib import Path

import pytest

from gptwright.findings import Confidence
from tests.diagnose.rules.nanogpt_run import CHARACTERS, diagnosed, found, power_law, write_run

FACTS = {"device": "RTX 4070", "train_tokens": 1_003_854}


def test_a_validation_that_never_fell_is_not_called_memorizing(tmp_path: Path) -> None:
    training = power_law(0.1, 4.2, 0.5)
    run = write_run(tmp_path, CHARACTERS, FACTS, training, val=lambda step: 4.2 + step / 2000, vocab_size=65)
    finding = found(run)["overfitting"]
    assert finding.confidence is Confidence.POSSIBLE
    assert "rose from the start" in finding.message
    assert "memorized" not in finding.message
    assert "other text than training" in finding.causes[0].text


LIST = [
    (250, 2.11),
    (500, 1.77),
    (750, 1.59),
    (1000, 1.52),
    (1250, 1.49),
    (1500, 1.51),
    (1750, 1.52),
    (2000, 1.56),
]


def questions(folder: Path, points: list[tuple[int, float]], words: str = "") -> dict[str, str]:
    lines = (f"step {step}: validation loss {value:.2f}{words}\n" for step, value in points)
    (folder / "log.txt").write_text("".join(lines))
    diagnosis = diagnosed(folder)
    assert "overfitting" not in {finding.id for finding in diagnosis.findings}
    return {unknown.question: unknown.missing for unknown in diagnosis.unknown}


def test_a_rise_without_training_losses_is_a_question(tmp_path: Path) -> None:
    """nanoGPT issue 211: validation alone, pasted."""
    missing = questions(tmp_path, LIST)["Does it overfit from step 1,250 on?"]
    assert "1.4900 there (line 5 of the log) and is 1.5600 at step 2,000 (line 8 of the log)" in missing


@pytest.mark.parametrize(
    "points", [LIST[:6], [(step, 2.0 + 0.02 * math.cos(step)) for step in range(0, 4000, 250)]]
)
def test_a_validation_that_scatters_raises_no_question(
    tmp_path: Path, points: list[tuple[int, float]]
) -> None:
    assert not any("overfit" in question for question in questions(tmp_path, points))


def test_training_that_falls_is_no_progress_beside_validation_that_does_not(tmp_path: Path) -> None:
    """Six evaluations are no curve for a forecast, and training lines alone would promise more."""
    lines = []
    for step in range(10, 601, 10):
        lines.append(
            f"Iter {step}: Train loss {2 * math.exp(-step / 150) + 0.8 - step / 2000:.3f}, It/sec 0.987"
        )
        if step % 100 == 0:
            lines.append(f"Iter {step}: Val loss {1.8 + abs(step - 400) / 2000:.3f}, Val took 17.177s")
    (tmp_path / "log.txt").write_text("\n".join(lines) + "\n")
    assert "still-improving" not in found(tmp_path)
    (tmp_path / "log.txt").write_text("\n".join(line for line in lines if "Val" not in line) + "\n")
    assert "still-improving" in found(tmp_path)


def test_one_evaluation_with_a_gap_asks_for_those_before(tmp_path: Path) -> None:
    """The end of a run over Shakespeare's characters, pasted."""
    log = "step 5000: train loss {}, val loss 1.7012\niter 5000: loss 0.8123, time 4447.12ms, mfu 9.99%\n"
    (tmp_path / "log.txt").write_text(log.format("0.6213"))
    missing = {unknown.question: unknown.missing for unknown in diagnosed(tmp_path).unknown}
    assert "a gap of 1.1 nats is memorized text" in missing["Was validation lower before?"]
    (tmp_path / "log.txt").write_text(log.format("1.5213"))
    assert "Was validation lower before?" not in {unknown.question for unknown in diagnosed(tmp_path).unknown}

"""Validation below training in logs whose training loss is taken while the model learns."""

from pathlib import Path

import pytest

from tests.diagnose.rules.nanogpt_run import diagnosed, web_loss


def questions(folder: Path, gap: float, form: str) -> dict[str, str]:
    lines = [
        form.format(s=s, t=f"{web_loss(s) + gap:.4f}", v=f"{web_loss(s):.4f}") for s in range(250, 5001, 250)
    ]
    (folder / "log.txt").write_text("\n".join(lines) + "\n")
    diagnosis = diagnosed(folder)
    assert "val-below-train" not in {finding.id for finding in diagnosis.findings}
    return {unknown.question: unknown.missing for unknown in diagnosis.unknown}


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ("step {s}: training loss {t}, validation loss {v}", "dropout, if it is on, lifts"),
        ("{s} train {t}00\n{s} val {v}", "its model has no dropout"),
    ],
)
def test_it_is_a_question_and_no_finding(tmp_path: Path, form: str, words: str) -> None:
    missing = questions(tmp_path, 0.15, form)["Why is validation below training, by 0.15 nats?"]
    assert words in missing
    assert "evaluated like validation" in missing


@pytest.mark.parametrize("gap", [0.0, -0.1])
def test_where_it_is_not_below_nothing_is_asked(tmp_path: Path, gap: float) -> None:
    asked = questions(tmp_path, gap, "step {s}: training loss {t}, validation loss {v}")
    assert not any("below training" in question for question in asked)

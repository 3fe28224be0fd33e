"""A learning rate that is clearly too high, and a loss that stays far above what is known."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gptwright.findings import Confidence
from tests.diagnose.rules.nanogpt_run import CHARACTERS, WEB, found, power_law, web_loss, write_run

Cli = Callable[..., Any]
OPENWEBTEXT = {"device": "RTX 3090", "dataset": "openwebtext", "train_tokens": 9_035_582_198}
SHAKESPEARE = {
    "device": "RTX 4070",
    "dataset": "shakespeare_char",
    "train_tokens": 1_003_854,
    "val_tokens": 111_540,
}


@pytest.mark.parametrize(("rate", "named"), [(1e-2, True), (6e-4, False)])
def test_a_loss_twice_the_known_one_is_above_it(tmp_path: Path, rate: float, named: bool) -> None:
    """5.6 after 2.5B tokens, where OpenWebText has 3.2 to 3.5; 1e-2 is 5.6 times 1.8e-3."""
    settings = WEB | {"learning_rate": rate, "min_lr": rate / 10}
    above = found(write_run(tmp_path, settings, OPENWEBTEXT, power_law(5.55, 10.9, 0.9)))["above-reference"]
    assert above.confidence is Confidence.LIKELY
    assert "far above" in above.message
    assert ("5.6 times the highest" in above.causes[0].text) is named


def test_divergence_names_the_rate(tmp_path: Path) -> None:
    def curve(step: float) -> float:
        return web_loss(step) if step < 2000 else 7.0

    settings = WEB | {"learning_rate": 9e-3}
    findings = found(write_run(tmp_path, settings, OPENWEBTEXT, curve))
    assert "0.009 is 5 times" in findings["divergence"].causes[0].text
    assert "above-reference" not in findings


def test_pairs_of_characters(tmp_path: Path) -> None:
    """2.47 is what a table of pairs of Shakespeare's characters reaches; the recipe has 1.47 by then."""
    folder = write_run(tmp_path, CHARACTERS, SHAKESPEARE, power_law(2.46, 4.3, 2.5), last=3000, vocab_size=65)
    findings = found(folder)
    assert "pairs of characters" in findings["above-reference"].message
    assert any("attention" in cause.text for cause in findings["above-reference"].causes)
    assert "stuck-loss" not in findings


@pytest.mark.parametrize(("device", "named"), [("M2 Max", True), ("RTX 4070", False)])
def test_an_apple_gpu_that_may_have_computed_wrongly_is_named(
    tmp_path: Path, device: str, named: bool
) -> None:
    facts = {**SHAKESPEARE, "device": device}
    folder = write_run(tmp_path, CHARACTERS, facts, power_law(2.46, 4.3, 2.5), last=3000, vocab_size=65)
    causes = found(folder)["above-reference"].causes
    assert any("Apple GPU" in cause.text for cause in causes) is named


def test_a_short_run_of_characters_is_not_stuck_at_pairs(tmp_path: Path) -> None:
    """2.4 after 250 steps is on the way: no four evaluations stay there."""
    folder = write_run(tmp_path, CHARACTERS, SHAKESPEARE, power_law(1.4, 4.3, 0.45), last=250, vocab_size=65)
    above = found(folder).get("above-reference")
    assert above is None or "pairs" not in above.message


@pytest.mark.parametrize(
    ("options", "fires"),
    [
        (["--learning_rate=1e-2"], True),
        (["--learning_rate=2e-3"], False),
        (["--learning_rate=2e-2", "--optimizer=muon"], False),
        (["--learning_rate=1e-2", "--n_embd=256", "--n_head=4"], False),
    ],
)
def test_a_plan_warns_of_it(gptwright: Cli, options: list[str], fires: bool) -> None:
    answer = gptwright("plan", "--json", "--device", "RTX 4090", "--min_lr=1e-4", *options)
    findings = {f["id"]: f for f in json.loads(answer.out)["findings"]}
    assert ("high-learning-rate" in findings) is fires
    if fires:
        assert findings["high-learning-rate"]["actions"][0]["set"] == {"learning_rate": 6e-4}


@pytest.mark.parametrize(("rate", "low"), [(6e-6, True), (2e-4, False)])
def test_a_rate_far_too_low_is_the_first_cause(tmp_path: Path, rate: float, low: bool) -> None:
    """6e-6 at 491,520 tokens a step, where GPT-3's table has 6e-4."""
    settings = WEB | {"learning_rate": rate, "min_lr": rate / 10}
    facts = {"dataset": "openwebtext", "train_tokens": 9_035_582_198}
    finding = found(write_run(tmp_path, settings, facts, power_law(5.0, 10.9, 0.62)))["above-reference"]
    assert ("the learning rate of 6e-06 is 1/" in finding.causes[0].text) is low
    assert (
        any(
            action.settings.get("learning_rate") == pytest.approx(5.9e-4, rel=0.05)
            for action in finding.actions
        )
        is low
    )

"""Losses that are no losses in nats: perplexities and bits, which people print and paste."""

import math
from pathlib import Path

import pytest

from tests.diagnose.rules.nanogpt_run import WEB, found, web_loss, write_run

FACTS = {"device": "RTX 3090", "dataset": "openwebtext", "train_tokens": 9_035_582_198}
OF_NATS = {"above-reference", "scaled-loss", "still-improving", "below-reference"}


def perplexity(step: float) -> float:
    return math.exp(web_loss(step))


def bits(step: float) -> float:
    return web_loss(step) / math.log(2)


@pytest.mark.parametrize("first", [0, 1500])
def test_a_perplexity_is_no_sum_and_no_loss(tmp_path: Path, first: int) -> None:
    """38 after 2B tokens: guessing over 50,304 tokens gives 10.83, so it can only be e^3.6."""
    findings = found(write_run(tmp_path, WEB, FACTS, perplexity, first=first, last=4000))
    worse = findings["worse-than-uniform"]
    assert "no loss in nats" in worse.message
    assert f"perplexity, of a loss of {web_loss(4000):.2f}" in worse.causes[0].text
    assert not OF_NATS & findings.keys()
    if not first:
        assert "perplexity" in findings["init-loss"].causes[0].text


def test_bits(tmp_path: Path) -> None:
    """15.7 at the start is 10.9 / ln 2."""
    findings = found(write_run(tmp_path, WEB, FACTS, bits, last=4000))
    assert "bits" in findings["init-loss"].causes[0].text
    assert not OF_NATS & findings.keys()
    assert "worse-than-uniform" not in findings


def test_nats_are_nats(tmp_path: Path) -> None:
    findings = found(write_run(tmp_path, WEB, FACTS, web_loss, last=4000))
    assert not {"init-loss", "worse-than-uniform", "scaled-loss"} & findings.keys()


def test_memorized_text_is_still_worse_than_guessing(tmp_path: Path) -> None:
    def val(step: float) -> float:
        return web_loss(step) + step / 400

    worse = found(write_run(tmp_path, WEB, FACTS, web_loss, val=val, last=4000))["worse-than-uniform"]
    assert "memorized" in worse.causes[0].text

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
    assert worse.causes[0].confidence == "likely"


def from_large_weights(step: float) -> float:
    """What weights of N(0, 1) begin with, and what is left of it after fifty steps."""
    return web_loss(step) + 320.0 * math.exp(-step / 12)


def test_a_loss_of_large_weights_is_no_sum(tmp_path: Path) -> None:
    """331 nats are 31 times ln(50,304), which any large number nearly is of some number; validation, which is
    averaged apart, begins there too.
    """
    findings = found(write_run(tmp_path, WEB, FACTS, from_large_weights, last=4000))
    assert "scaled-loss" not in findings
    assert "initialized too large" in findings["init-loss"].causes[0].text


def test_a_large_multiple_is_a_sum_where_the_run_sums_so_many(tmp_path: Path) -> None:
    """40 micro-batches are summed in the one log; 31 are in none of it."""

    def times(factor: float) -> set[str]:
        def val(step: float) -> float:
            return web_loss(step) + 0.02

        folder = tmp_path / str(factor)
        write_run(folder, WEB, FACTS, lambda step: factor * web_loss(step), val=val, last=1000)
        text = (folder / "log.txt").read_text()
        (folder / "log.txt").write_text(
            "".join(f"{line}\n" for line in text.split("\n") if "val" not in line)
        )
        return set(found(folder))

    assert "scaled-loss" in times(40)
    assert "scaled-loss" not in times(31)


def test_a_first_line_a_little_below_guessing_is_no_pretrained_model(tmp_path: Path) -> None:
    """11.2 over 151,936 tokens, where guessing gives 11.93: no model that knows a language is there."""
    (tmp_path / "log.txt").write_text(
        "".join(f"{{'loss': {11.2 - n / 10:.2f}, 'step': {1 + 10 * n}, 'epoch': 0.1}}\n" for n in range(30))
    )
    (tmp_path / "facts.toml").write_text("vocab_size = 151936\n")
    causes = [cause.text for cause in found(tmp_path)["init-loss"].causes]
    assert not any("pretrained" in cause for cause in causes)

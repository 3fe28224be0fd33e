"""The same training, quicker: what a plan offers where it costs nothing."""

from typing import Any

import pytest

from gptwright.config.schema import TrainConfig
from gptwright.facts import stated
from gptwright.findings import Finding
from gptwright.plan.faster import speed_findings
from gptwright.plan.plan import Plan, make_plan

GPT2: dict[str, Any] = {"n_layer": 12, "n_head": 12, "n_embd": 768, "block_size": 1024, "vocab_size": 50304}


def found(card: str, **settings: Any) -> dict[str, Finding]:
    def planner(config: TrainConfig) -> Plan:
        return make_plan(config, {"device": stated("device", card)}, sources={})

    findings = speed_findings(planner(TrainConfig(**GPT2 | settings)), planner)
    return {finding.id: finding for finding in findings}


def test_gpt2s_own_vocabulary_is_offered_padded() -> None:
    """120.9 ms in place of 135.5 on an A30, 93 in place of 96 on an A100 (build-nanogpt)."""
    finding = found("A30", batch_size=8, gradient_accumulation_steps=1, vocab_size=50257)[
        "unpadded-vocabulary"
    ]
    assert finding.actions[0].settings == {"vocab_size": 50304}
    # 47 rows of 768.
    assert "36,096 parameters that no token uses" in finding.message
    assert "1 to 12 % shorter" in finding.message


@pytest.mark.parametrize(
    "settings",
    [
        {},
        # Characters: their head is next to nothing.
        {"vocab_size": 65, "n_layer": 6, "n_head": 6, "n_embd": 384, "block_size": 256},
        {"vocab_size": 50257, "init_from": "gpt2"},
        {"vocab_size": 50257, "dtype": "float32"},
    ],
)
def test_where_padding_brings_nothing_or_cannot_be_it_is_not_offered(settings: dict[str, Any]) -> None:
    assert "unpadded-vocabulary" not in found("RTX 4090", **settings)


def test_single_sequences_are_offered_together() -> None:
    finding = found("RTX 4090", batch_size=1, gradient_accumulation_steps=480)["small-micro-batch"]
    settings: dict[str, Any] = dict(finding.actions[0].settings)
    assert settings["batch_size"] > 8
    assert settings["batch_size"] * settings["gradient_accumulation_steps"] == 480
    again = found("RTX 4090", **settings)
    assert "small-micro-batch" not in again


def test_a_step_of_several_devices_stays_whole_on_each() -> None:
    def planner(config: TrainConfig) -> Plan:
        facts = {"device": stated("device", "RTX 4090"), "device_count": stated("device_count", 4)}
        return make_plan(config, facts, sources={})

    start = TrainConfig(**GPT2, batch_size=1, gradient_accumulation_steps=480)
    (finding,) = speed_findings(planner(start), planner)
    settings: dict[str, Any] = dict(finding.actions[0].settings)
    assert 120 % settings["batch_size"] == 0


@pytest.mark.parametrize(
    ("card", "settings"),
    [
        # It fills the card already, does not fit at all, is not known, or is another kind of device.
        ("RTX 4070", {"batch_size": 12, "gradient_accumulation_steps": 40}),
        ("RTX 4070", {"batch_size": 64, "gradient_accumulation_steps": 8}),
        ("RTX 9999", {"batch_size": 1, "gradient_accumulation_steps": 480}),
        ("M3 Max 64GB", {"batch_size": 1, "gradient_accumulation_steps": 480}),
    ],
)
def test_no_other_cut_is_offered_without_need(card: str, settings: dict[str, Any]) -> None:
    assert "small-micro-batch" not in found(card, **settings)


@pytest.mark.parametrize(
    ("settings", "quicker"),
    [({"compile": False}, {"compile": True}), ({"dtype": "float32"}, {"dtype": "auto"})],
)
def test_what_slows_a_card_down_is_named(settings: dict[str, Any], quicker: dict[str, Any]) -> None:
    finding = found("RTX 4090", **settings)["slow-setting"]
    assert finding.actions[0].settings == quicker
    # build-nanogpt's lecture: eager 300 ms, compiled 130; nanoGPT's readme: 250 and 135.
    assert "times as fast" in finding.message
    assert "slow-setting" not in found("RTX 4090", **settings | quicker)


def test_a_card_that_cannot_do_better_is_not_told_to() -> None:
    assert "slow-setting" not in found("GTX 1080 Ti", compile=False, dtype="float32")
    assert "slow-setting" not in found("P100", dtype="float32")

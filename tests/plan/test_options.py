"""A step that does not fit, and what to do about it."""

from dataclasses import replace
from typing import Any

import pytest

from gptwright.config.schema import TrainConfig
from gptwright.facts import stated
from gptwright.plan.options import memory_findings
from gptwright.plan.plan import Plan, make_plan

GPT2: dict[str, Any] = {"n_layer": 12, "n_head": 12, "n_embd": 768, "block_size": 1024, "dtype": "bfloat16"}


def planner(card: str) -> Any:
    def plan(config: TrainConfig) -> Plan:
        return make_plan(config, {"device": stated("device", card)}, sources={})

    return plan


def options(card: str, **settings: Any) -> list[dict[str, Any]]:
    plan = planner(card)(TrainConfig(**GPT2 | settings))
    findings = memory_findings(plan, planner(card))
    return [dict(action.settings) for finding in findings for action in finding.actions]


def test_a_run_that_fits_gets_no_option() -> None:
    assert options("RTX 4090", batch_size=12, gradient_accumulation_steps=40) == []


def test_an_unknown_card_gets_none() -> None:
    assert options("RTX 9999", batch_size=12, gradient_accumulation_steps=40) == []


def test_large_logits_are_offered_in_chunks() -> None:
    """12 × 1024 × 50,304 × 12 bytes are 6.9 GiB of logits in 13.6 GiB; in chunks the batch fits 12 GB."""
    found = options("RTX 4070", batch_size=12, gradient_accumulation_steps=40, compile=False)
    assert found == [
        {"batch_size": 8, "gradient_accumulation_steps": 60},
        {"compile": True},
        {"loss_chunk": 512},
        {"gradient_checkpointing": True},
    ]


@pytest.mark.parametrize("change", [{"compile": True}, {"loss_chunk": 512}, {"gradient_checkpointing": True}])
def test_every_option_fits(change: dict[str, Any]) -> None:
    config = TrainConfig(**GPT2, batch_size=12, gradient_accumulation_steps=40, compile=False)
    plan = planner("RTX 4070")
    assert plan(config).fits is False
    assert plan(replace(config, **change)).fits is True


def test_a_larger_micro_batch_is_offered_where_the_whole_does_not_fit_in_chunks_either() -> None:
    found = options("RTX 3060", batch_size=32, gradient_accumulation_steps=16, compile=False)
    assert found[0]["batch_size"] < found[-1]["batch_size"] < 32
    assert found[-1]["loss_chunk"] == 512


def test_large_activations_are_offered_to_be_computed_again() -> None:
    """48 layers over 65 characters: logits are next to nothing."""
    settings: dict[str, Any] = {"n_layer": 48, "vocab_size": 65, "gradient_accumulation_steps": 30}
    found = options("RTX 4070", batch_size=16, **settings)
    assert not any("loss_chunk" in option for option in found)
    assert found[-1] == {"gradient_checkpointing": True}
    plan = planner("RTX 4070")
    (finding,) = memory_findings(plan(TrainConfig(**GPT2 | settings, batch_size=16)), plan)
    assert "computed again in the backward pass (some 2" in finding.actions[-1].text


def test_nothing_fits() -> None:
    plan = planner("RTX 2060")
    config = TrainConfig(n_layer=48, n_head=25, n_embd=1600, block_size=1024, batch_size=1, dtype="float16")
    (finding,) = memory_findings(plan(config), plan)
    assert "Not even one sequence fits" in finding.actions[0].text

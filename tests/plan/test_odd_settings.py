"""Settings of the optimizer that no known run has: said, and no loss is promised for them."""

from typing import Any

import pytest

from gptwright.config.load import load_config, preset_names
from gptwright.config.schema import TrainConfig
from gptwright.facts import stated
from gptwright.plan.odd_settings import settings_findings
from gptwright.plan.plan import Plan, make_plan

SHORT: dict[str, Any] = {"max_iters": 5000, "lr_decay_iters": 5000, "warmup_iters": 100}


def planned(**settings: Any) -> Plan:
    facts = {"device": stated("device", "RTX 4090")}
    return make_plan(TrainConfig(**{**SHORT, **settings}), facts, sources={})


def found(*, epochs: float | None = None, **settings: Any) -> set[str]:
    return {finding.id for finding in settings_findings(TrainConfig(**{**SHORT, **settings}), epochs=epochs)}


@pytest.mark.parametrize(
    ("settings", "finding"),
    [
        ({"learning_rate": 1e-6}, "low-learning-rate"),
        ({"learning_rate": 5e-5}, "low-learning-rate"),
        # The square-root rule: a thirty-second of the tokens, 5.7 times less.
        ({"learning_rate": 9e-6, "gradient_accumulation_steps": 1}, "low-learning-rate"),
        ({"weight_decay": 10.0}, "odd-optimizer"),
        ({"beta1": 0.95, "beta2": 0.9}, "odd-optimizer"),
    ],
)
def test_what_no_known_run_has_is_said_and_promises_nothing(settings: dict[str, Any], finding: str) -> None:
    assert found(**settings) == {finding}
    plan = planned(**settings)
    assert plan.loss is None
    assert "usual settings of the optimizer" in plan.unknown[-1].missing


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"learning_rate": 1e-4},
        {"learning_rate": 3e-5, "gradient_accumulation_steps": 1},
        {"learning_rate": 3e-4, "n_layer": 24, "n_head": 16, "n_embd": 1024},
        {"weight_decay": 0.0, "beta2": 0.999},
        {"weight_decay": 1.0},
        {"learning_rate": 3e-5, "init_from": "gpt2"},
        {"learning_rate": 1e-6, "eval_only": True},
    ],
)
def test_what_people_train_with_is_not(settings: dict[str, Any]) -> None:
    assert found(**settings) == set()


@pytest.mark.parametrize("preset", preset_names())
def test_our_presets_are_like_known_runs(preset: str) -> None:
    assert settings_findings(load_config([preset]).config, epochs=None) == ()


def test_dropout_over_fresh_text_does_nothing_and_over_the_same_it_does() -> None:
    assert found(dropout=0.1, epochs=1.05) == {"idle-dropout"}
    assert found(dropout=0.2, epochs=82.0) == set()
    assert found(dropout=0.1, epochs=None) == set()
    assert found(dropout=0.1, epochs=1.0, init_from="gpt2") == set()

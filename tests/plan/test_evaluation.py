"""What evaluations cost and can say, held against counts by hand."""

from typing import Any

import pytest

from gptwright.config.schema import TrainConfig
from gptwright.facts import Fact, stated
from gptwright.findings import Finding
from gptwright.plan.evaluation import evaluation_findings, evaluations
from gptwright.plan.plan import Plan, make_plan
from gptwright.plan.promise import promise_document
from gptwright.report.plan_document import plan_document
from gptwright.report.planned import plan_facts

GPT2: dict[str, Any] = {"max_iters": 5000, "lr_decay_iters": 5000, "warmup_iters": 100, "eval_iters": 200}


def planned(facts: dict[str, Fact] | None = None, **settings: Any) -> Plan:
    given = {
        "device": stated("device", "RTX 4090"),
        "dataset": stated("dataset", "wikitext"),
        **(facts or {}),
    }
    return make_plan(TrainConfig(vocab_size=50304, **{**GPT2, **settings}), given, sources={})


def found(plan: Plan) -> dict[str, Finding]:
    return {finding.id: finding for finding in evaluation_findings(plan)}


def test_an_evaluation_is_forward_passes_over_both_splits() -> None:
    plan = planned(eval_interval=500, batch_size=12)
    assert plan.speed is not None
    cost = evaluations(plan)
    # After steps 0, 500, … 4500 and at the end; 200 × 12 windows of each split.
    assert (cost.count, cost.windows) == (11, 4800)
    assert cost.seconds is not None
    low, likely, high = cost.seconds
    assert likely == pytest.approx(11 * 4800 * 1024 / 3 / plan.speed.likely)
    assert low < likely < high
    schedule = plan_document(plan, (), ())["schedule"]
    assert schedule["evaluations"] == 11
    assert schedule["evaluation_seconds"]["likely"] == pytest.approx(likely)
    # Training alone, as before.
    assert schedule["seconds"]["likely"] == pytest.approx(5000 * 491_520 / plan.speed.likely)


def test_a_split_has_no_more_windows_than_fit_without_overlap() -> None:
    tokens = {name: stated(name, 10_241, unit="tokens") for name in ("train_tokens", "val_tokens")}
    assert evaluations(planned(tokens)).windows == 20


def test_evaluations_that_outlast_the_training_are_said() -> None:
    assert "costly-evaluation" not in found(planned(eval_interval=250))
    finding = found(planned(eval_interval=3))["costly-evaluation"]
    # 4,800 windows for 3 steps of 480 windows, at a third of the work: 1.1 times.
    assert "1.1 times the training itself" in finding.message
    interval = finding.actions[0].settings["eval_interval"]
    assert isinstance(interval, int)
    again = planned(eval_interval=interval)
    seconds = evaluations(again).seconds
    assert seconds is not None
    assert again.seconds is not None
    assert seconds[1] < 0.12 * again.seconds[1]


def test_an_interval_beyond_the_run_is_said() -> None:
    assert found(planned(eval_interval=10_000))["rare-evaluation"].actions[0].settings == {
        "eval_interval": 500
    }
    assert "rare-evaluation" not in found(planned(eval_interval=5000))


def test_a_validation_split_of_a_few_windows_is_said_where_somebody_states_it() -> None:
    small = stated("val_tokens", 5600, unit="tokens")
    finding = found(planned({"val_tokens": small}))["small-val-split"]
    # 0.40 nats a window over the root of 5.5.
    assert "about 5.5 windows of 1,024: its mean is unsure by about 0.17 nats" in finding.message
    assert "small-val-split" not in found(planned({"val_tokens": stated("val_tokens", 4_434_897)}))
    # What nanoGPT's own script makes of Shakespeare is as it is, stated or not.
    own = {"val_tokens": stated("val_tokens", 36_059), "dataset": stated("dataset", "shakespeare")}
    assert "small-val-split" not in found(planned(own, dataset="shakespeare"))
    less = own | {"val_tokens": stated("val_tokens", 30_000)}
    assert "small-val-split" in found(planned(less, dataset="shakespeare"))


def test_too_few_windows_are_said_and_nanogpts_are_enough() -> None:
    finding = found(planned(eval_iters=1))["noisy-eval"]
    # 0.40 / sqrt(12) nats.
    assert "unsure by about 0.12 nats" in finding.message
    assert "noisy-eval" not in found(planned(eval_iters=6))
    assert "noisy-eval" not in found(planned())


def test_an_evaluation_alone_is_planned_as_one() -> None:
    plan = planned(eval_only=True, batch_size=8, eval_iters=500)
    document = plan_document(plan, (), ())
    assert (document["schedule"]["steps"], document["schedule"]["evaluations"]) == (0, 1)
    assert document["schedule"]["seconds"] == {"low": None, "likely": None, "high": None}
    assert document["schedule"]["evaluation_seconds"]["likely"] > 0
    assert document["memory"]["peak_bytes"] is None
    assert set(document["memory"]["parts"].values()) == {None}
    assert document["throughput"]["tokens_per_second"]["likely"] is None
    assert promise_document(plan)["peak_memory_bytes"] is None
    names = [fact.name for fact in plan_facts(plan)]
    assert "evaluations" in names
    assert not {"peak memory", "time", "energy", "tokens per second"} & {*names}

"""The line of a promise before a run, and before the rest of one."""

from typing import Any

from gptwright import units
from gptwright.config.schema import TrainConfig
from gptwright.facts import stated
from gptwright.plan.plan import Plan, make_plan
from gptwright.report.promise import show_outcome, show_promise
from tests.report.records import screen_of


def planned(**settings: Any) -> Plan:
    config = TrainConfig(vocab_size=50304, max_iters=4000, **settings)
    return make_plan(config, {"device": stated("device", "RTX 4070")}, sources={})


def shown(plan: Plan, done: int) -> str:
    console, text = screen_of(terminal=False)
    show_promise(console, plan, done=done)
    return " ".join(text.getvalue().split())


def test_a_resumed_run_is_promised_what_is_left() -> None:
    plan = planned()
    assert plan.seconds is not None
    whole, rest = (units.duration(plan.seconds[1] * share) for share in (1, 1 / 4))
    assert shown(plan, 0).startswith(f"the plan's promise about {whole} (")
    assert "left" not in shown(plan, 0)
    assert f"about {rest} (" in shown(plan, 3000)
    assert "for the 1,000 steps that are left" in shown(plan, 3000)


def test_an_evaluation_alone_is_promised_no_time() -> None:
    assert "about" not in shown(planned(eval_only=True), 0)


def test_a_promise_is_held_against_the_steps_since_it_was_made() -> None:
    before: list[dict[str, Any]] = [{"kind": "train", "tokens_per_second": 10.0}] * 9
    resumed = [*before, {"kind": "resume"}, {"kind": "train", "tokens_per_second": 70_000.0}]
    console, text = screen_of(terminal=False)
    show_outcome(console, planned(), resumed)
    assert "70,000" in text.getvalue()
    console, text = screen_of(terminal=False)
    show_outcome(console, planned(), [*before, {"kind": "resume"}, {"kind": "end"}])
    assert text.getvalue() == ""

"""Another batch: one change where its schedule is over as many tokens, two where it is over as many steps."""

from pathlib import Path
from typing import Any

import pytest

from gptwright.diagnose.compare import Verdict
from tests.diagnose.test_compare import compared, run


@pytest.mark.parametrize(
    ("schedule", "verdict"),
    [
        # Of as many steps the half batch's decay is over in half the tokens.
        ({"lr_decay_iters": 6000}, Verdict.CONFOUNDED),
        ({"lr_decay_iters": 6000, "decay_lr": False}, Verdict.B_BETTER),
        # So early in a decay both rates are still at their peak.
        ({"lr_decay_iters": 600_000}, Verdict.B_BETTER),
    ],
)
def test_another_batch_over_as_many_steps_stretches_the_schedule(
    tmp_path: Path, schedule: dict[str, Any], verdict: Verdict
) -> None:
    decay: dict[str, Any] = {"learning_rate": 6e-4, "min_lr": 6e-5, "warmup_iters": 300} | schedule
    b = run(tmp_path / "b", loss=3.2, gradient_accumulation_steps=4, **decay)
    found = compared(run(tmp_path / "a", loss=3.5, **decay), b)
    assert found.verdict is verdict
    assert ("schedule in tokens" in found.findings[0].message) == (verdict is Verdict.CONFOUNDED)


def test_another_batch_with_its_schedule_over_as_many_tokens_is_one_change(tmp_path: Path) -> None:
    rate: dict[str, Any] = {"learning_rate": 6e-4, "min_lr": 6e-5, "warmup_iters": 300}
    b = run(
        tmp_path / "b",
        loss=3.2,
        steps=range(1000, 12001, 1000),
        **rate | {"max_iters": 12000, "lr_decay_iters": 12000, "gradient_accumulation_steps": 4},
    )
    found = compared(run(tmp_path / "a", loss=3.5, **rate, lr_decay_iters=6000), b)
    assert found.verdict is Verdict.B_BETTER
    assert "only tokens per step was changed" in found.findings[0].message

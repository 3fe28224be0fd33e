"""Which settings that differ are one change."""

from pathlib import Path
from typing import Any

from gptwright.diagnose.compare import Verdict
from tests.diagnose.test_compare import compared, message, run


def test_a_schedule_over_as_many_tokens_is_the_same_with_another_batch(tmp_path: Path) -> None:
    """Half the batch takes twice the steps: that is one change, and not two."""
    whole = run(tmp_path / "a", loss=3.5, lr_decay_iters=6000)

    def half_batches(name: str, decay: int) -> Path:
        return run(
            tmp_path / name,
            loss=3.3,
            steps=range(1000, 12_001, 1000),
            max_iters=12_000,
            gradient_accumulation_steps=4,
            lr_decay_iters=decay,
        )

    found = compared(whole, half_batches("b", 12_000))
    assert found.verdict is Verdict.B_BETTER
    assert "only tokens per step was changed" in message(found)
    assert compared(whole, half_batches("c", 6000)).verdict is Verdict.CONFOUNDED


def test_a_resume_is_no_change_and_what_came_before_it_is_not_known(tmp_path: Path) -> None:
    b = run(tmp_path / "b", loss=3.3, learning_rate=1.8e-3, init_from="resume")
    found = compared(run(tmp_path / "a", loss=3.5), b)
    assert found.verdict is Verdict.B_BETTER
    assert "b was resumed: what came before is not in its log" in found.reasons
    assert "only learning rate was changed" in found.findings[0].message


def test_a_decay_over_as_many_steps_is_not_one_over_as_many_tokens(tmp_path: Path) -> None:
    longer: dict[str, Any] = {"lr_decay_iters": 6000, "max_iters": 6000}
    a = run(tmp_path / "a", loss=3.5, **longer)
    found = compared(a, run(tmp_path / "b", loss=3.3, gradient_accumulation_steps=4, **longer))
    assert any("fewer tokens in b" in reason for reason in found.reasons)
    same = compared(a, run(tmp_path / "c", loss=3.3, learning_rate=1e-3, **longer))
    assert not any("decay" in reason for reason in same.reasons)


def test_lines_of_training_have_no_best(tmp_path: Path) -> None:
    """The lowest of hundreds of noisy lines is chance."""
    runs = []
    for name, end in (("a", 3.5), ("b", 3.2)):
        lines = [
            f"iter {s}: loss {end + 900 / s:.4f}, time 500.00ms, mfu 30.00%" for s in range(100, 6001, 100)
        ]
        runs.append(
            run(tmp_path / name, loss=end, lines="\n".join(lines[: 60 if name == "a" else 40]) + "\n")
        )
    found = compared(*runs)
    assert found.verdict is Verdict.B_BETTER
    assert "lines from" in message(found)
    assert "Best of each" not in message(found)

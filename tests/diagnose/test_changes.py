"""Which settings that differ are one change."""

from pathlib import Path

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

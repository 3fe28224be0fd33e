"""A loss summed over the accumulation, of weights that were not fresh: guessing tells nothing there."""

import json
import math
from pathlib import Path

import pytest

from tests.diagnose.rules.nanogpt_run import found


def fine_tuning(folder: Path, *, times: float, accumulation: int) -> Path:
    """A trainer_state.json of ten passes over little text."""
    folder.mkdir()
    history: list[dict[str, float]] = []
    for step in range(10, 1501, 10):
        loss = times * max(0.9, 3.3 * math.exp(-step / 900))
        history.append({"epoch": step / 150, "learning_rate": 5e-5, "loss": round(loss, 4), "step": step})
        if step % 150 == 0:
            history.append(
                {"epoch": step / 150, "eval_loss": 3.12 + 3.5e-7 * (step - 450) ** 2, "step": step}
            )
    state = {"global_step": 1500, "max_steps": 1500, "num_train_epochs": 10, "log_history": history}
    (folder / "trainer_state.json").write_text(json.dumps(state, indent=2))
    settings = f"batch_size = 4\nblock_size = 128\ngradient_accumulation_steps = {accumulation}\n"
    (folder / "config.py").write_text("init_from = 'gpt2'\n" + settings)
    return folder


def test_training_that_is_the_accumulation_times_validation_is_a_sum(tmp_path: Path) -> None:
    findings = found(fine_tuning(tmp_path / "run", times=8, accumulation=8))
    assert "about 8 times validation beside it" in findings["scaled-loss"].message
    assert str(findings["scaled-loss"].confidence) == "likely"
    assert "fell to 0.9000, logged as 7.2000" in findings["overfitting"].message


@pytest.mark.parametrize(("times", "accumulation"), [(1.0, 8), (1.4, 8), (8.0, 4), (2.0, 2)])
def test_other_training_is_taken_as_it_is_logged(tmp_path: Path, times: float, accumulation: int) -> None:
    assert "scaled-loss" not in found(fine_tuning(tmp_path / "run", times=times, accumulation=accumulation))

"""What a resume did to the loss, told from a rate that was set back and from a run that goes on as it was."""

import math
from pathlib import Path

import numpy as np

from gptwright.findings import Finding
from tests.diagnose.rules.nanogpt_run import found


def resumed(folder: Path, jump: float, *, rate: bool = False, back: bool = False) -> dict[str, Finding]:
    """A log of 200 lines whose loss is `jump` higher behind a resume at step 1,000."""
    rng = np.random.default_rng(0)
    lines = ["number of parameters: 123.59M"]
    for step in range(0, 2001, 10):
        if step == 1010:
            lines += ["Resuming training from out", "number of parameters: 123.59M"]
        loss = 3.2 + 7.5 * math.exp(-step / 150) + rng.normal(0, 0.05)
        if step > 1000:
            loss += jump * (math.exp(-(step - 1000) / 100) if back else 1.0)
        shown = f"lr {6e-4 if rate and step > 1000 else 6e-4 * (1 - step / 2200):.6f}, " if rate else ""
        lines.append(f"iter {step}: {shown}loss {loss:.4f}, time 210.00ms, mfu 30.00%")
    folder.mkdir(exist_ok=True)
    (folder / "log.txt").write_text("\n".join(lines) + "\n")
    return found(folder)


def test_a_loss_that_is_higher_behind_a_resume_is_no_divergence(tmp_path: Path) -> None:
    findings = resumed(tmp_path, 0.6)
    message = findings["resume-jump"].message
    assert "3.21 before the run was resumed at step 1,010 (line 103) and 3.79" in message
    assert "has not come back by step 2,000" in message
    assert "optimizer" in findings["resume-jump"].causes[0].text
    assert "divergence" not in findings


def test_one_that_came_back(tmp_path: Path) -> None:
    assert "was back by step 1," in resumed(tmp_path, 0.8, back=True)["resume-jump"].message


def test_a_run_that_goes_on_as_it_was(tmp_path: Path) -> None:
    assert "resume-jump" not in resumed(tmp_path, 0.0)


def test_a_rate_that_was_set_back_is_the_cause(tmp_path: Path) -> None:
    findings = resumed(tmp_path, 0.3, rate=True)
    assert "resume-jump" not in findings
    assert "lr-jump" in findings


def test_an_older_checkpoint_is_compared_at_its_own_steps(tmp_path: Path) -> None:
    """Taken up at step 300 again, the loss is as high as it was there."""
    rng = np.random.default_rng(1)

    def line(step: int) -> str:
        return (
            f"iter {step}: loss {3.2 + 7.5 * math.exp(-step / 300) + rng.normal(0, 0.02):.4f}, time 210.00ms"
        )

    steps = [*range(0, 1001, 10), *range(300, 1001, 10)]
    (tmp_path / "log.txt").write_text("".join(line(step) + "\n" for step in steps))
    assert "resume-jump" not in found(tmp_path)

"""What a resume did to the loss, told from a rate that was set back and from a run that goes on as it was."""

import math
import time
from pathlib import Path

import numpy as np

from gptwright.diagnose.engine import diagnose
from gptwright.diagnose.reading import read_run
from gptwright.findings import Finding
from gptwright.record.open_run import open_run
from gptwright.report.documents import run_summary
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
    assert findings["lr-jump"].actions[0].settings == {"lr_schedule": "wsd"}


def test_a_schedule_with_a_cool_down_is_not_advised_to_who_has_it(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('lr_schedule = "wsd"\n')
    (action,) = resumed(tmp_path, 0.3, rate=True)["lr-jump"].actions
    assert "before its cool-down" in action.text
    assert not action.settings


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


def evaluated(*steps: tuple[int, float]) -> list[str]:
    return [f"step {step}: train loss {loss:.4f}, val loss {loss + 0.1:.4f}" for step, loss in steps]


def behind(step: int, loss: float) -> str:
    return f"iter {step}: loss {loss:.4f}, time 33.00ms, mfu 11.20%"


def resumed_at_2000(folder: Path, after: float, lines: float, *, dropout: float = 0.0) -> dict[str, Finding]:
    """A log in which only an evaluation of 1.30 stands before the resume at step 2,000."""
    folder.mkdir(exist_ok=True)
    rng = np.random.default_rng(2)
    log = ["number of parameters: 10.65M", *evaluated((2000, 1.3)), "Resuming training from out"]
    log += evaluated((2000, after)) if after else []
    log += [behind(step, lines + rng.normal(0, 0.03)) for step in range(2000, 3001, 10)]
    (folder / "log.txt").write_text("\n".join(log) + "\n")
    (folder / "config.py").write_text(f"dropout = {dropout}\n")
    return found(folder)


def test_evaluations_at_the_same_step_are_of_the_same_weights(tmp_path: Path) -> None:
    jump = resumed_at_2000(tmp_path, 2.9, 2.8)["resume-jump"]
    assert "was 1.30 before the run was resumed at step 2,000 (line 3) and 2.90 behind it" in jump.message
    assert "neither the optimizer nor the schedule" in jump.message
    assert [fact.source for fact in jump.evidence] == ["log:2", "log:4"]
    assert jump.causes[0].text.startswith("the weights are not those")


def test_where_they_agree_the_weights_are_right_and_the_lines_tell(tmp_path: Path) -> None:
    jump = resumed_at_2000(tmp_path, 1.305, 2.0)["resume-jump"]
    assert "so the weights are right" in jump.message
    assert jump.causes[0].text.startswith("the optimizer's moments")
    assert not any("weights are not those" in cause.text for cause in jump.causes)


def test_where_all_agree_nothing_is_said(tmp_path: Path) -> None:
    assert "resume-jump" not in resumed_at_2000(tmp_path, 1.305, 1.3)


def test_lines_behind_an_evaluation_alone(tmp_path: Path) -> None:
    assert "1.30 before" in resumed_at_2000(tmp_path / "none", 0.0, 1.8)["resume-jump"].message
    # Dropout lifts lines above an evaluation by as much.
    assert "resume-jump" not in resumed_at_2000(tmp_path / "some", 0.0, 1.8, dropout=0.2)


def test_evaluations_without_any_line(tmp_path: Path) -> None:
    log = ["number of parameters: 10.65M", *evaluated((0, 4.2), (500, 1.9), (1000, 1.7))]
    log += ["Resuming training from out", *evaluated((1000, 2.7), (1500, 2.0), (2000, 1.6))]
    (tmp_path / "log.txt").write_text("\n".join(log) + "\n")
    jump = found(tmp_path)["resume-jump"]
    assert "1.70 before the run was resumed at step 1,000 (line 5) and 2.70" in jump.message
    assert "was back by step 2,000" in jump.message


def test_validation_alone_that_memorizing_raises_is_no_jump(tmp_path: Path) -> None:
    lines = [
        {"step": step, "eval_loss": 3.0 + step / 4000, "epoch": step / 400} for step in range(400, 2001, 400)
    ]
    log = [str(lines[0]), str(lines[1]), "Resuming training from checkpoint-800", *map(str, lines[2:])]
    (tmp_path / "log.txt").write_text("\n".join(log) + "\n")
    assert "resume-jump" not in found(tmp_path)


def test_a_rate_that_rises_at_a_fixed_interval_restarts_by_plan(tmp_path: Path) -> None:
    lines = [
        f"iter {step}: lr {6e-4 * (1 + math.cos(math.pi * (step % 1000) / 1000)) / 2:.6f}, loss"
        f" {3 + 700 / (step + 90):.4f}, time 33.00ms, mfu 11.00%"
        for step in range(0, 4001, 20)
    ]
    (tmp_path / "log.txt").write_text("\n".join(lines) + "\n")
    finding = found(tmp_path)["lr-jump"]
    assert "every 1,000 steps, 4 times" in finding.message
    assert finding.severity == "info"


def test_the_best_validation_is_that_of_all_evaluations(tmp_path: Path) -> None:
    """A resume that evaluates its step again, on other batches, does not undo what the step had."""
    lines = []
    for step, val in ((0, 4.2), (1000, 1.62), (2000, 1.49), (2000, 1.53), (2500, 1.52)):
        lines += [f"step {step}: train loss {val - 0.1:.4f}, val loss {val:.4f}"]
        lines += [f"iter {step}: loss {val:.4f}, time 30.00ms, mfu 10.00%"]
        if val == 1.49:
            lines.append("Resuming training from out")
    (tmp_path / "log.txt").write_text("\n".join(lines) + "\n")
    summary = run_summary(read_run(open_run(str(tmp_path))))
    assert (summary["best_val_loss"], summary["best_val_step"], summary["last_val_loss"]) == (
        1.49,
        2000,
        1.52,
    )


def test_lines_out_of_order_cost_no_more_than_others(tmp_path: Path) -> None:
    """Each of 20,000 lines that stands behind its neighbour looks like a process of its own."""
    steps = [step for pair in range(0, 40_000, 2) for step in (pair + 1, pair)]
    lines = [
        f"iter {step}: loss {3 + 8 * math.exp(-step / 5e3):.4f}, time 9.00ms, mfu 1.00%" for step in steps
    ]
    (tmp_path / "log.txt").write_text("\n".join(lines) + "\n")
    begin = time.process_time()
    reading = read_run(open_run(str(tmp_path)))
    diagnose(reading)
    assert time.process_time() - begin < 10
    assert reading.log is not None
    assert reading.log.hazards["further lines of kind resume"] == 20_000 - 1 - 1_000

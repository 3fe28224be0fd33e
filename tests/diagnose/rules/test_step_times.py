"""What the times of steps say: waiting, what is done at a fixed interval, and a machine that slows down."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from gptwright.diagnose.reading import read_run
from gptwright.findings import Finding
from gptwright.record.open_run import open_run
from tests.diagnose.rules.nanogpt_run import found


def timed(folder: Path, seconds: Callable[[int], float], *, last: int = 3000) -> dict[str, Finding]:
    """A log of lines alone, with a time for each step."""
    rng = np.random.default_rng(0)
    lines = [
        f"iter {step}: loss {3 + 700 / (step + 90):.4f}, time {1e3 * seconds(step) * noise:.2f}ms, mfu 30.00%"
        for step in range(0, last + 1, 10)
        for noise in [rng.normal(1, 0.003)]
    ]
    folder.mkdir(exist_ok=True)
    (folder / "log.txt").write_text("\n".join(lines) + "\n")
    return found(folder)


def test_what_is_done_at_a_fixed_interval_is_no_stall(tmp_path: Path) -> None:
    findings = timed(tmp_path, lambda step: 63.0 if step % 250 == 0 else 3.0)
    assert "data-stall" not in findings
    assert "Every 250 steps, from step 250 to step 3,000" in findings["eval-in-timing"].message
    assert findings["eval-in-timing"].evidence[1].source == "log:26"
    assert "evaluation" in findings["eval-in-timing"].causes[0].text


def test_a_step_that_waits_now_and_then_is_one(tmp_path: Path) -> None:
    findings = timed(tmp_path, lambda step: 40.0 if step in (710, 1630, 2060) else 3.0)
    assert "710 (40." in findings["data-stall"].message
    assert "eval-in-timing" not in findings


def test_three_that_are_evenly_apart_by_chance_are_stalls(tmp_path: Path) -> None:
    assert "data-stall" in timed(tmp_path, lambda step: 40.0 if step in (1510, 1570, 1630) else 3.0)


def test_one_step_in_four_that_waits_is_still_said(tmp_path: Path) -> None:
    slow = np.random.default_rng(3).random(400) < 0.25
    assert "data-stall" in timed(tmp_path, lambda step: 24.0 if slow[step // 10] else 3.0)


def test_a_machine_that_slows_down(tmp_path: Path) -> None:
    findings = timed(tmp_path, lambda step: 3.0 if step < 1000 else 7.5)
    finding = findings["slower-steps"]
    assert (
        "A step took 3.0 s at first and 7.5 s at the end, 150 % longer, from about step 1,000 on"
        in finding.message
    )
    assert finding.severity == "warning"
    assert finding.evidence[1].source == "log:101"
    assert finding.evidence[1].number == pytest.approx(7.5, rel=0.02)


def test_a_machine_that_slows_down_little_by_little(tmp_path: Path) -> None:
    finding = timed(tmp_path, lambda step: 3.0 * (1 + 0.5 * step / 3000))["slower-steps"]
    assert "longer, little by little." in finding.message
    assert finding.severity == "info"


@pytest.mark.parametrize(
    "seconds",
    [
        lambda step: 3.0,
        lambda step: 3.0 * (1 + 0.1 * step / 3000),
        lambda step: 4.5 if step < 1000 else 3.0,
        lambda step: 3.0 + 2.0 * (step // 10 % 2),
    ],
    ids=["steady", "a tenth", "quicker", "up and down"],
)
def test_times_that_do_not_rise_are_left_alone(tmp_path: Path, seconds: Callable[[int], float]) -> None:
    assert "slower-steps" not in timed(tmp_path, seconds)


def test_a_machine_that_is_hot_within_minutes(tmp_path: Path) -> None:
    """The slower part begins in the first quarter of the run."""
    finding = timed(tmp_path, lambda step: 3.0 if step < 450 else 4.2)["slower-steps"]
    assert "3.0 s at first and 4.2 s at the end, 40 % longer, from about step 450 on" in finding.message


def test_an_average_that_steps_pull_down_is_no_other_batch(tmp_path: Path) -> None:
    """nanoGPT's MFU is an average: its highest belongs to the quick steps, the median time to the slow."""
    flops = 12_288 * (6 * 123_587_328 + 12 * 12 * 768 * 1024)
    lines, running = ["tokens per iteration will be: 12,288", "number of parameters: 123.59M"], -1.0
    for step in range(0, 3001, 10):
        seconds = 0.1 if step < 900 else 0.22
        mfu = flops / seconds / 312e12
        running = mfu if running < 0 else 0.9 * running + 0.1 * mfu
        loss = 3 + 700 / (step + 90)
        lines.append(f"iter {step}: loss {loss:.4f}, time {1e3 * seconds:.2f}ms, mfu {100 * running:.2f}%")
    (tmp_path / "log.txt").write_text("\n".join(lines) + "\n")
    settings = {"n_layer": 12, "n_head": 12, "n_embd": 768, "block_size": 1024, "batch_size": 12}
    settings |= {"gradient_accumulation_steps": 1}
    (tmp_path / "config.py").write_text("".join(f"{name} = {value}\n" for name, value in settings.items()))
    (tmp_path / "facts.toml").write_text("vocab_size = 50304\n")
    reading = read_run(open_run(str(tmp_path)))
    implied = reading.speed.implied_tokens_per_step
    assert implied is not None
    assert implied.number == pytest.approx(12_288, rel=0.01)
    findings = found(tmp_path)
    assert "slower-steps" in findings
    assert "batch-mismatch" not in findings

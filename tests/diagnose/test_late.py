"""The mean over late evaluations: it calls one equal pair in twenty different, and few different ones
equal."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from gptwright.diagnose.compare import Comparison, Verdict, compare
from gptwright.diagnose.compare.late import late_difference
from gptwright.diagnose.reading import Reading, read_run
from gptwright.record.open_run import open_run

CONFIG = """dataset = 'openwebtext'
gradient_accumulation_steps = 40
batch_size = 12
block_size = 1024
n_layer = 12
n_head = 12
n_embd = 768
max_iters = 5000
lr_decay_iters = 5000
eval_iters = 200
"""
# 0.40 nats a window, 200 × 12 of them; seeds of GPT-2 small.
OF_ONE, OF_SEEDS = 0.40 / math.sqrt(2400), 0.00135
PAIRS = 60


def a_run(
    folder: Path, random: np.random.Generator, *, lower: float = 0.0, rate: str = "6e-4", turn: float = 0.0
) -> Reading:
    """Evaluations of nanoGPT around a curve, `lower` by so much, and higher by `turn` at the start."""
    folder.mkdir(parents=True)
    seed = random.normal(0, OF_SEEDS)
    lines = []
    for step in range(250, 5001, 250):
        loss = 3.3 + 1200 / (step + 500) + seed - lower + turn * (1 - step / 2500)
        lines.append(f"step {step}: train loss {loss:.4f}, val loss {loss + random.normal(0, OF_ONE):.4f}")
    (folder / "log.txt").write_text("\n".join(lines) + "\n")
    (folder / "config.py").write_text(CONFIG + f"learning_rate = {rate}\n")
    (folder / "facts.toml").write_text('device = "A100"\n')
    return read_run(open_run(str(folder)))


def pairs(tmp_path: Path, lower: float) -> list[Comparison]:
    random = np.random.default_rng(7)
    return [
        compare(
            a_run(tmp_path / f"{at}a", random), a_run(tmp_path / f"{at}b", random, lower=lower, rate="8e-4")
        )
        for at in range(PAIRS)
    ]


def test_equal_runs_are_within_the_noise_but_for_one_in_twenty(tmp_path: Path) -> None:
    apart = [found for found in pairs(tmp_path, 0.0) if found.verdict is not Verdict.WITHIN_NOISE]
    assert len(apart) <= 0.1 * PAIRS


def test_a_small_difference_that_every_evaluation_shows_is_seen(tmp_path: Path) -> None:
    found = pairs(tmp_path, 0.02)
    assert sum(each.verdict is Verdict.B_BETTER for each in found) >= 0.95 * PAIRS
    # The last evaluations alone would have told half of them.
    assert sum(each.at_equal_tokens[-1].significant for each in found) < 0.75 * PAIRS
    assert "in the mean of 11 evaluations from 1.23B to 2.46B tokens" in found[0].findings[0].message


def test_where_curves_cross_the_end_decides_and_the_crossing_is_said(tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    found = compare(a_run(tmp_path / "a", random), a_run(tmp_path / "b", random, turn=0.2))
    assert found.verdict is Verdict.B_BETTER
    assert "The curves cross: after" in found.findings[0].message
    assert "a was still ahead" in found.findings[0].message


def test_few_evaluations_are_judged_by_the_last(tmp_path: Path) -> None:
    random = np.random.default_rng(5)
    runs = [a_run(tmp_path / name, random) for name in "ab"]
    assert late_difference(*runs) is not None
    for name in "ab":
        log = tmp_path / name / "log.txt"
        log.write_text("\n".join(log.read_text().splitlines()[-3:]) + "\n")
    assert late_difference(*(read_run(open_run(str(tmp_path / name))) for name in "ab")) is None


def of_ours(folder: Path, *, seed: int) -> Reading:
    """Evaluations of this trainer, with the error of the windows that its seed chose."""
    folder.mkdir()
    lines = [
        json.dumps(
            {
                "v": 1,
                "kind": "eval",
                "step": step,
                "train_loss": 3 + 900 / step,
                "train_loss_standard_error": 0.01,
                "val_loss": 3 + 900 / step,
                "val_loss_standard_error": 0.01,
            }
        )
        for step in range(250, 5001, 250)
    ]
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    settings = {"seed": seed, "batch_size": 12, "block_size": 1024, "eval_iters": 20}
    (folder / "config.toml").write_text("".join(f"{name} = {value}\n" for name, value in settings.items()))
    (folder / "facts.toml").write_text("val_tokens = 10000000\n")
    return read_run(open_run(str(folder)))


def test_windows_that_stay_the_same_are_no_more_sure_for_being_read_again(tmp_path: Path) -> None:
    a, b = of_ours(tmp_path / "a", seed=1), of_ours(tmp_path / "b", seed=2)
    assert late_difference(a, b) is None
    error = compare(a, b).at_equal_tokens[-1].standard_error
    assert error == pytest.approx(math.hypot(0.01, 0.01, 0.0056, 0.0056), rel=0.01)


def test_the_same_windows_are_as_hard_for_both(tmp_path: Path) -> None:
    a, b = of_ours(tmp_path / "a", seed=1), of_ours(tmp_path / "b", seed=1)
    error = compare(a, b).at_equal_tokens[-1].standard_error
    assert error == pytest.approx(math.hypot(0.0025, 0.0025, 0.0056, 0.0056), rel=0.01)

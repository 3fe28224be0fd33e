"""Step times and MFUs of a run on a busy machine, where no two steps take as long."""

import json
from pathlib import Path

import numpy as np
import pytest

from gptwright.arithmetic.parameters import count_parameters
from gptwright.diagnose.engine import diagnose
from gptwright.diagnose.reading import read_run
from gptwright.record.open_run import open_run

CONFIG = """
n_layer = 4
n_head = 4
n_embd = 128
block_size = 64
batch_size = 12
gradient_accumulation_steps = 1
"""
FLOPS_A_STEP = 768 * (6 * 795_904 + 12 * 4 * 128 * 64)
PEAK = 1e11


def run_of(folder: Path, *, tokens_told: int) -> Path:
    """Our record of 200 steps whose times differ by a factor of ten, MFUs to match."""
    counted = count_parameters(
        n_layer=4, n_embd=128, block_size=64, vocab_size=65, bias=False, tie_weights=True
    )
    assert counted.nanogpt == 795_904
    start = {"v": 1, "kind": "start", "time": 1.0, "step": 0, "tokens_per_step": tokens_told}
    start |= {"vocab_size": 65, "parameters_nanogpt": 795_904, "device": "AMD EPYC", "dtype": "float32"}
    lines = [start | {"peak_flops": PEAK, "max_iters": 200}]
    for step, seconds in enumerate(np.random.default_rng(1).lognormal(np.log(0.1), 0.6, 200)):
        line = {"v": 1, "kind": "train", "time": 2.0, "step": step, "loss": 4.2 - 0.01 * step}
        lines.append(line | {"seconds": seconds, "mfu": FLOPS_A_STEP / seconds / PEAK})
    (folder / "config.toml").write_text(CONFIG)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def test_a_busy_machine_is_no_other_batch(tmp_path: Path) -> None:
    reading = read_run(open_run(str(run_of(tmp_path, tokens_told=768))))
    assert reading.speed.implied_tokens_per_step is not None
    assert reading.speed.implied_tokens_per_step.number == pytest.approx(768, rel=1e-3)
    assert "batch-mismatch" not in {finding.id for finding in diagnose(reading).findings}


def test_another_batch_is_seen_on_a_busy_machine_too(tmp_path: Path) -> None:
    reading = read_run(open_run(str(run_of(tmp_path, tokens_told=256))))
    assert "batch-mismatch" in {finding.id for finding in diagnose(reading).findings}

"""Logs of few lines: a handful of epochs, two evaluations, losses that never move, many spikes."""

import math
from pathlib import Path

import numpy as np
import pytest

from gptwright.findings import Finding, Severity
from tests.diagnose.rules.nanogpt_run import found


def findings(folder: Path, log: str) -> dict[str, Finding]:
    (folder / "log.txt").write_text(log)
    return found(folder)


def epochs(train: list[float], val: list[float]) -> str:
    pairs = enumerate(zip(train, val, strict=True), 1)
    return "".join(f"Epoch {n}/{len(val)} | train loss {t:.4f} | val loss {v:.4f}\n" for n, (t, v) in pairs)


def test_validation_that_turns_within_five_epochs(tmp_path: Path) -> None:
    log = epochs([5.57, 4.70, 4.46, 4.29, 4.17], [5.01, 4.81, 4.75, 4.79, 4.85])
    told = findings(tmp_path, log)
    assert "best at epoch 3 with 4.7500 and is 4.8500 at epoch 5" in told["overfitting"].message
    assert told["many-epochs"].severity is Severity.INFO


@pytest.mark.parametrize(
    ("train", "val"),
    [
        ([5.57, 4.70, 4.46, 4.29, 4.17], [5.01, 4.81, 4.75, 4.72, 4.73]),
        ([5.57, 4.70, 4.46, 4.45, 4.44], [5.01, 4.81, 4.75, 4.77, 4.81]),
        ([5.57, 4.70, 4.46, 4.29, 4.17], [5.01, 4.81, 4.75, 4.82, 4.74]),
    ],
)
def test_validation_that_has_not_turned(train: list[float], val: list[float], tmp_path: Path) -> None:
    assert "overfitting" not in findings(tmp_path, epochs(train, val))


def test_two_evaluations_of_a_fine_tune_that_memorized(tmp_path: Path) -> None:
    head = "".join(f"iter {n}: loss 1.{n % 10}, time 745.00ms\n" for n in range(790, 800))
    log = (
        head + "step 800: train loss 0.9795, val loss 3.7535\nstep 1000: train loss 0.6703, val loss 3.8986\n"
    )
    assert "a gap of 3.2 nats is memorized text" in findings(tmp_path, log)["overfitting"].message
    closer = log.replace("3.7535", "1.7535").replace("3.8986", "1.6986")
    assert "overfitting" not in findings(tmp_path, closer)


def test_a_loss_that_is_the_same_in_every_line(tmp_path: Path) -> None:
    log = "".join(f"step {n} | loss 10.8259 | dt 0.5s\n" for n in range(30))
    told = findings(tmp_path, log)["stuck-loss"]
    assert "exactly 10.8259 in every line from step 0 to step 29" in told.message
    for rounded in ("10.9", "0.012"):
        assert "stuck-loss" not in findings(tmp_path, log.replace("10.8259", rounded))


def test_many_tall_spikes_in_a_short_log(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    losses = [3.3 + 6 * math.exp(-n / 8) + rng.normal(0, 0.05) for n in range(80)]
    for place in range(20, 78, 8):
        losses[place] += rng.uniform(2.0, 4.0)
        losses[place + 1] += 1.5
    log = "".join(f"iter {10 * n}: loss {loss:.4f}, time 210.00ms\n" for n, loss in enumerate(losses))
    spikes = findings(tmp_path, log)["loss-spike"]
    assert "7 spikes" in spikes.message
    assert spikes.severity is Severity.WARNING


def test_an_mfu_above_the_device_may_be_relative_to_it(tmp_path: Path) -> None:
    """A changed nanochat prints 74 % of the A100 that it runs on; read as a share of an H100 it
    would be 235 %.
    """
    line = (
        "step {:05d}/21400 (0.02%) | loss: {:.6f} | lrm: 1.00 | dt: 990.00ms | tok/sec: 529,882 |"
        " mfu: 74.13 |"
        " total time: 0.00m\n"
    )
    (tmp_path / "facts.toml").write_text('device = "A100"\ndevice_count = 8\n')
    told = findings(tmp_path, "".join(line.format(n, 9 - n / 10) for n in range(4, 20)))[
        "impossible-throughput"
    ]
    assert "divides by the device's own peak" in told.causes[0].text
    assert told.severity is Severity.WARNING


def test_memory_that_runs_out_at_one_sequence(tmp_path: Path) -> None:
    (tmp_path / "config.py").write_text(
        "init_from = 'gpt2-xl'\nbatch_size = 1\ngradient_accumulation_steps = 32\n"
    )
    (tmp_path / "facts.toml").write_text('device = "RTX 3090"\n')
    message = (
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 100.00 MiB (GPU 0; 23.68"
        " GiB total"
        " capacity; 21.67 GiB already allocated; 85.06 MiB free; 21.92 GiB reserved in total by PyTorch)\n"
    )
    told = findings(tmp_path, message)["out-of-memory"]
    assert "Not even one sequence fits 23.7 GiB" in told.actions[0].text
    small = "n_layer = 12\nn_head = 12\nn_embd = 768\nblock_size = 1024\nvocab_size = 50257\nbatch_size = 1\n"
    (tmp_path / "config.py").write_text(small)
    (tmp_path / "facts.toml").write_text('device = "GTX 1060"\n')
    message = message.replace("23.68", "5.93").replace("21.67", "4.64").replace("100.00", "198.00")
    assert "batch_size is 1 already" in findings(tmp_path, message)["out-of-memory"].actions[0].text


def test_a_run_that_failed_in_its_first_step_is_not_undertrained(tmp_path: Path) -> None:
    log = (
        "tokens per iteration will be: 491,520\nnumber of parameters: 123.59M\n"
        "step 0: train loss 10.9000, val loss 10.9000\niter 0: loss 10.9000, time 900.00ms, mfu -100.00%\n"
    )
    told = findings(
        tmp_path, log + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.07 GiB.\n"
    )
    assert "out-of-memory" in told
    assert "undertrained" not in told
    assert "undertrained" in findings(tmp_path, log + "iter 200: loss 6.9000, time 900.00ms, mfu 30.00%\n")


def test_a_log_that_counts_epochs_is_spoken_of_in_epochs(tmp_path: Path) -> None:
    broken = findings(tmp_path, epochs([5.57, 4.70, math.nan, math.nan], [5.01, 4.81, math.nan, math.nan]))
    assert "from epoch 3 on (line 3)" in broken["non-finite-loss"].message
    assert "at epoch 2" in broken["non-finite-loss"].message
    (tmp_path / "facts.toml").write_text("vocab_size = 65\n")
    worse = findings(tmp_path, epochs([3.9, 2.9, 2.0, 1.2], [4.1, 4.3, 4.6, 5.3]))
    assert "is 5.3000 at epoch 4, above" in worse["worse-than-uniform"].message

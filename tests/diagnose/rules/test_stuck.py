"""A loss that stays: guessing, frequencies alone, or a vocabulary that is another than is said."""

import math
from pathlib import Path

import numpy as np
import pytest

from gptwright.diagnose.engine import diagnose
from gptwright.diagnose.reading import read_run
from gptwright.findings import Finding
from gptwright.record.open_run import open_run
from tests.diagnose.rules.nanogpt_run import found


def run(
    folder: Path, start: float, end: float, config: str, *, fall: float = 100.0, mfu: float = 30.0
) -> dict[str, Finding]:
    folder.mkdir(exist_ok=True)
    rng = np.random.default_rng(0)
    lines = ["number of parameters: 123.59M"]
    for step in range(0, 3001, 20):
        loss = end + (start - end) * math.exp(-step / fall) + rng.normal(0, 0.02)
        lines.append(f"iter {step}: loss {loss:.4f}, time 300.00ms, mfu {mfu:.2f}%")
    (folder / "log.txt").write_text("\n".join(lines) + "\n")
    (folder / "config.py").write_text(config)
    return found(folder)


def test_a_rate_of_nothing_is_the_cause_of_guessing(tmp_path: Path) -> None:
    finding = run(tmp_path, 10.9, 10.9, "vocab_size = 50304\nlearning_rate = 0.0\nwarmup_iters = 100\n")[
        "stuck-loss"
    ]
    assert "learned nothing: this is guessing" in finding.message
    assert finding.causes[0].text == "the learning rate is 0"
    assert not any("too high" in cause.text for cause in finding.causes)


def test_frequencies_alone_have_other_causes(tmp_path: Path) -> None:
    finding = run(tmp_path, 10.9, 7.6, "vocab_size = 50304\nlearning_rate = 6e-4\nwarmup_iters = 100\n")[
        "stuck-loss"
    ]
    assert "learned no context" in finding.message
    assert "too high" in finding.causes[0].text


def test_another_vocabulary_than_is_said_is_not_stuck(tmp_path: Path) -> None:
    findings = run(tmp_path, 10.85, 4.1, "vocab_size = 65\nwarmup_iters = 100\n")
    assert "stuck-loss" not in findings
    assert "as the 50,257 of GPT-2 would give" in findings["init-loss"].causes[0].text


def test_an_exchange_that_one_process_never_came_to(tmp_path: Path) -> None:
    log = "iter 0: loss 10.9000, time 300.00ms\niter 1: loss 10.8000, time 300.00ms\n"
    log += "[E ProcessGroupNCCL.cpp:475] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL\n"
    (tmp_path / "log.txt").write_text(log)
    assert "one process waited for another" in found(tmp_path)["known-error"].message


def test_a_log_that_ends_before_its_first_step_says_so(tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_text(
        "tokens per iteration will be: 491,520\nnumber of parameters: 123.59M\n"
    )
    unknown = diagnose(read_run(open_run(str(tmp_path)))).unknown
    assert unknown[0].missing == "a line of a step: the log ends before the first"


SMALL_BATCH = """vocab_size = 50304
n_layer = 12
n_head = 12
n_embd = 768
batch_size = 8
gradient_accumulation_steps = 1
block_size = 512
max_iters = 3000
lr_decay_iters = 3000
warmup_iters = 100
"""


def test_a_rate_too_high_for_its_batch_holds_a_loss_below_the_frequencies_too(tmp_path: Path) -> None:
    finding = run(tmp_path / "a", 10.9, 6.35, SMALL_BATCH + "learning_rate = 2e-3\n", mfu=3.5)["stuck-loss"]
    assert "has not moved in three quarters of the run" in finding.message
    assert "too high for so small a batch" in finding.causes[0].text
    assert finding.actions[0].settings == {"gradient_accumulation_steps": 16}
    # With a rate that fits, nothing tells whether such a level is the model's own.
    assert "stuck-loss" not in run(
        tmp_path / "b", 10.9, 6.35, SMALL_BATCH + "learning_rate = 1e-4\n", mfu=3.5
    )
    # A run that goes on falling is none.
    falling = run(tmp_path / "c", 10.9, 5.6, SMALL_BATCH + "learning_rate = 2e-3\n", fall=1500.0, mfu=3.5)
    assert "stuck-loss" not in falling


@pytest.mark.parametrize(("level", "stuck"), [(2.36, False), (2.79, True)])
def test_below_the_frequencies_of_letters_context_was_learned(
    tmp_path: Path, level: float, stuck: bool
) -> None:
    """A tiny model over names of 27 letters comes to rest at 2.4 nats, which is more than two thirds of ln 27
    and less than what letters have without the one before them.
    """
    lines = [f"step {n:4d} / 1000 | loss {level + 0.9 * math.exp(-n / 80):.4f}\n" for n in range(1, 1001, 5)]
    (tmp_path / "log.txt").write_text("vocab size: 27\nnum params: 4192\n" + "".join(lines))
    assert ("stuck-loss" in found(tmp_path)) == stuck


def test_a_perplexity_of_three_digits_stays_the_same_where_a_run_rests(tmp_path: Path) -> None:
    lines = [f"step {n} ppl {24.1 + 900 * math.exp(-n / 40):.1f} lr 3e-4\n" for n in range(0, 1000, 10)]
    (tmp_path / "log.txt").write_text("".join(lines))
    assert "stuck-loss" not in found(tmp_path)

"""Logs are what the trainers print: their shapes, their clocks, and whose peak their MFU is relative to."""

import json
import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from gptwright.config.load import load_config
from gptwright.record.metrics import read_metrics
from tests.simulator import healthy_runs, write_run
from tests.simulator.devices import A100_PEAK
from tests.simulator.handing import true_handover
from tests.simulator.line_shapes import SHAPES, matches, plain_run


@pytest.mark.parametrize("trainer", SHAPES)
def test_lines_have_the_trainers_shapes(trainer: str) -> None:
    truth, files = plain_run(trainer, 11)
    train, evaluation = SHAPES[trainer]
    lines = matches(train, files["log.txt"])
    assert len(lines) >= truth.last_step // truth.log_interval - 1
    if truth.eval_interval:
        assert len(matches(evaluation, files["log.txt"])) >= truth.last_step // truth.eval_interval - 1


def test_shapes_of_the_variants() -> None:
    for trainer, variant, shape in (
        ("nanogpt", "without-mfu", r"iter \d+: loss [\d.]+, time [\d.]+ms"),
        ("build-nanogpt", "file", r"\d+ train \d\.\d{6}"),
        ("llmc", "file", r"s:\d+ trl:[\d.]+ lr:[\d.]+ norm:[\d.]+"),
        (
            "modded-current",
            "seconds",
            r"step:\d+/\d+ val_loss:\d\.\d{5} train_time:[\d.]+s step_avg:[\d.]+ms",
        ),
        ("hf", "strings", r" +\{'loss': '[\d.]+', 'grad_norm': '[\d.]+', .*\}"),
    ):
        _, files = plain_run(trainer, 12, variant=variant)
        assert len(matches(shape, files["log.txt"])) > 4, (trainer, variant)


@pytest.mark.parametrize("trainer", ["nanogpt", "llama2c"])
def test_mfu_is_the_running_average_against_an_a100(trainer: str) -> None:
    truth, files = plain_run(trainer, 21, aligned=True)
    flops = truth.shape.flops_per_token * truth.tokens_per_step / truth.device_count
    running = -1.0
    for match in matches(SHAPES[trainer][0], files["log.txt"]):
        step = int(match[1])
        milliseconds, printed = (float(text) for text in match.groups()[-2:])
        if step < 5:
            assert printed == -100
            continue
        mfu = 100 * flops / (milliseconds / 1000) / A100_PEAK
        running = mfu if running == -1 else 0.9 * running + 0.1 * mfu
        assert printed == pytest.approx(running, abs=0.012, rel=2e-3)


def test_undisturbed_mfu_gives_back_the_tokens_of_a_step() -> None:
    truth, files = plain_run("nanogpt", 22, vocabulary=50304, devices=("A100",))
    lines = matches(SHAPES["nanogpt"][0], files["log.txt"])
    first = next(match for match in lines if 5 <= int(match[1]) < truth.eval_interval)
    tokens = float(first[4]) / 100 * A100_PEAK * float(first[3]) / 1000 / truth.shape.flops_per_token
    assert tokens * truth.device_count == pytest.approx(truth.tokens_per_step, rel=5e-3)


def test_evaluations_are_in_the_time_of_their_line_where_the_trainer_puts_them() -> None:
    for trainer in ("nanogpt", "build-nanogpt"):
        truth, files = plain_run(trainer, 23, aligned=True)
        at = {
            int(match[1]): float(match[3 if trainer == "nanogpt" else 5])
            for match in matches(SHAPES[trainer][0], files["log.txt"])
        }
        milliseconds = at[truth.eval_interval]
        expected = truth.step_seconds + truth.eval_seconds + truth.checkpoint_seconds
        assert milliseconds / 1000 == pytest.approx(expected, rel=0.05)
        assert at[truth.eval_interval + truth.log_interval] / 1000 == pytest.approx(
            truth.step_seconds, rel=0.03
        )


def test_mfu_of_the_others_is_against_their_own_tables() -> None:
    truth, files = plain_run("llmc", 24, devices=("RTX 4090",))
    line = matches(SHAPES["llmc"][0], files["log.txt"])[5]
    assert float(line[6]) / 100 == pytest.approx(
        truth.efficiency * truth.shape.llmc_flops_per_token / truth.shape.flops_per_token, rel=0.03
    )
    _, files = plain_run("llmc", 24, devices=("RTX 5090",))
    assert "-100.0% bf16 MFU" in files["log.txt"]
    truth, files = plain_run("nanochat", 24, devices=("RTX 4070",))
    assert "Peak FLOPS (BF16): inf" in files["log.txt"]
    assert {match[4] for match in matches(SHAPES["nanochat"][0], files["log.txt"])} == {"0.00"}
    truth, files = plain_run("torchtitan", 24, devices=("RTX 4090",))
    line = matches(SHAPES["torchtitan"][0], files["log.txt"])[5]
    assert float(line[3]) / 100 == pytest.approx(truth.efficiency * 165.2 / 312, rel=0.03)
    assert "fallback to A100" in files["log.txt"]


def test_modded_clock_is_the_sum_of_its_steps() -> None:
    truth, files = plain_run("modded", 25)
    lines = matches(SHAPES["modded"][0], files["log.txt"])
    last = lines[-1]
    assert float(last[4]) == pytest.approx(float(last[3]) / (int(last[1]) - 10), rel=1e-3)
    assert float(last[4]) / 1000 == pytest.approx(truth.step_seconds, rel=0.01)
    assert 'f"step:{step}/{train_steps} val_loss' in files["log.txt"].split("=" * 100)[0]


def test_litgpt_counts_micro_batches() -> None:
    truth, files = plain_run("litgpt", 26, count=1)
    pairs = re.findall(r"iter (\d+) step (\d+)", files["log.txt"])
    assert {int(a) / int(b) for a, b in pairs} == {truth.accumulation}
    milliseconds = float(re.findall(r"iter time: ([\d.]+) ms", files["log.txt"])[3])
    assert milliseconds / 1000 * truth.accumulation == pytest.approx(truth.step_seconds, rel=0.03)


def test_our_folder_is_read_by_the_package(tmp_path: Path) -> None:
    truth, files = plain_run("ours", 41)
    folder = write_run(tmp_path / "run", truth, true_handover(np.random.default_rng(1), truth, damaged=False))
    records = read_metrics(folder / "metrics.jsonl")
    assert [records[0]["kind"], records[-1]["kind"]] == ["start", "end"]
    assert records[0]["tokens_per_step"] == truth.tokens_per_step
    train = [record for record in records if record["kind"] == "train"]
    assert np.median([record["seconds"] for record in train]) == pytest.approx(truth.step_seconds, rel=0.01)
    assert load_config([str(folder / "config.toml")]).config.n_embd == truth.shape.n_embd
    assert f"number of parameters: {truth.parameters / 1e6:.2f}M" in files["log.txt"]


def test_trainer_state_is_json_with_its_best() -> None:
    truth, files = plain_run("hf-state", 42)
    state = json.loads(files["trainer_state.json"])
    evals = [entry for entry in state["log_history"] if "eval_loss" in entry]
    assert state["best_metric"] == min(entry["eval_loss"] for entry in evals)
    assert state["global_step"] == truth.last_step
    assert state["log_history"][-1]["train_runtime"] == pytest.approx(
        truth.last_step * truth.step_seconds, rel=1e-3
    )


def test_a_clean_resume_goes_back_and_keeps_its_learning_rate() -> None:
    for simulated in healthy_runs(200, seed=9, formats=("llama2c",)):
        if len(simulated.truth.segments) > 1 and not simulated.handover.hazards:
            break
    else:
        pytest.fail("no run was resumed")
    lines = matches(SHAPES["llama2c"][0], simulated.files["log.txt"])
    rates: dict[int, set[str]] = {}
    for match in lines:
        rates.setdefault(int(match[1]), set()).add(match[3])
    assert any(int(b[1]) < int(a[1]) for a, b in pairwise(lines))
    assert all(len(values) == 1 for values in rates.values())
    assert "Resuming training" in simulated.files["log.txt"]

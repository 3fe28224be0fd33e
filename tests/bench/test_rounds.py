"""Rounds of a small workload: ours beside a checkout, with their ratios and the fraction of the peak."""

import importlib.util
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from gptwright.bench import trainers
from gptwright.bench.process import Finished
from gptwright.bench.results import Row
from gptwright.bench.rounds import row_of, run_rounds
from gptwright.bench.trainers import Others, Trainer, hf_trainer
from gptwright.bench.workloads import CHARACTERS, ONE, WORKLOADS, Workload, steps
from gptwright.config.load import load_config
from gptwright.errors import ConfigError
from gptwright.hardware.detect import find_device
from tests.conftest import Answer

Command = Callable[..., Answer]
TINY = {"block_size": 32, "batch_size": 4, "n_layer": 1, "n_head": 2, "n_embd": 32, "dropout": 0.0}
WORKLOAD = Workload(
    about="a model of next to nothing",
    tokenizer="char",
    options=CHARACTERS | TINY | ONE | steps(30),
    warm_up=5,
    compiles=False,
)
# Trains nothing, but takes options, sleeps and prints as nanoGPT does.
STAND_IN = """
import sys, time
options = dict(argument[2:].split("=", 1) for argument in sys.argv[1:])
assert options["compile"] == "False" and options["n_embd"] == "32" and options["device"] == "cpu"
open(f"data/{options['dataset']}/train.bin", "rb").close()
print("step 0: train loss 4.00, val loss 4.00")
for step in range(int(options["max_iters"])):
    time.sleep(0.02)
    print(f"iter {step}: loss 3.0, time 20.00ms, mfu 1.00%")
print("step 30: train loss 3.00, val loss 3.10")
"""


def checkout(folder: Path) -> Path:
    for name in ("model.py", "configurator.py"):
        (folder / name).write_text("")
    (folder / "train.py").write_text(STAND_IN)
    return folder


HF_IS_HERE = all(map(importlib.util.find_spec, ("transformers", "accelerate")))
TEXT = "All the world's a stage, and all the men and women merely players.\n" * 400


@dataclass(frozen=True, slots=True)
class Round:
    """What one round of everybody left: the rows, and what was said of them."""

    rows: list[Row]
    said: list[str]


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Round:
    """Ours, nanoGPT (or what stands in for it) and, where it is installed, Hugging Face's Trainer."""
    folder = tmp_path_factory.mktemp("round")
    given = os.environ.get("NANOGPT")
    others = Others(nanogpt=Path(given) if given else checkout(folder), hf_trainer=HF_IS_HERE)
    text = folder / "text.txt"
    text.write_text(TEXT)
    # In float32, because two runs on a CPU that has bfloat16 need not choose the same.
    learning = {**WORKLOAD.options, "warmup_iters": 5, "learning_rate": 1e-2, "dtype": "float32"}
    work = replace(WORKLOAD, options=learning, less_memory=({"loss_chunk": 16},))
    said: list[str] = []
    rows = run_rounds(work, rounds=1, peak=lambda: 1e11, others=others, text=text, said=said.append)
    return Round(rows, said)


@pytest.mark.slow
def test_all_do_the_same_work_in_turns(played: Round) -> None:
    names = [row.trainer for row in played.rows]
    assert names[:3] == ["gptwright", "gptwright, less memory", "nanoGPT eager"]
    assert [line.partition(":")[0] for line in played.said] == names
    ours, less, theirs = played.rows[:3]
    # The same steps: to the last digits that are printed.
    assert less.val_loss == pytest.approx(ours.val_loss, abs=2e-4)
    assert (ours.times_ours_wall, ours.times_ours_step) == (1.0, 1.0)
    assert theirs.times_ours_wall == pytest.approx(theirs.runs[0].wall_seconds / ours.runs[0].wall_seconds)
    assert ours.tokens_per_second == pytest.approx(4 * 32 / ours.runs[0].step_seconds)
    # 6·N + 12·L·C·T a token, 128 tokens a step
    flops = 128 * (6 * (12 * 32**2 + 3 * 32 + len(set(TEXT)) * 32) + 12 * 32 * 32)
    assert ours.fraction_of_peak == pytest.approx(flops / 1e11 / ours.runs[0].step_seconds)
    assert 1.0 < ours.val_loss < 3.5


def test_a_machine_that_drifts_is_held_against_itself() -> None:
    """The third round found it at half its rate: peak and steps alike."""
    ours, other = (Trainer(name=name, command=()) for name in ("ours", "other"))
    runs = {
        "ours": [finished(seconds) for seconds in (1.0, 1.2, 2.0)],
        "other": [finished(seconds) for seconds in (3.0, 3.0, 6.2)],
    }
    at_peak = [0.5, 0.5, 1.0]
    row = row_of(ours, runs, WORKLOAD, at_peak)
    assert row.fraction_of_peak == pytest.approx(0.5)
    assert row.tokens_per_second == pytest.approx(4 * 32 / 1.2)
    row = row_of(other, runs, WORKLOAD, at_peak)
    assert row.times_ours_step == pytest.approx(3.0)
    assert row.fraction_of_peak == pytest.approx(0.5 / 3.0)
    assert row_of(replace(ours, preset="shakespeare"), runs, WORKLOAD, at_peak).fraction_of_peak is None


def finished(step_seconds: float) -> Finished:
    return Finished(step_seconds=step_seconds, wall_seconds=10 * step_seconds, peak_bytes=1, val_loss=1.0)


@pytest.mark.slow
@pytest.mark.skipif(not HF_IS_HERE, reason="needs transformers and accelerate, which `make test` installs")
def test_hugging_faces_trainer_learns_the_same(played: Round) -> None:
    ours, _, _, theirs = played.rows
    assert theirs.trainer.startswith("HF Trainer eager")
    for run in theirs.runs:
        assert 0 < run.step_seconds < run.wall_seconds / 10
        assert run.peak_bytes > 100e6
    # The same model on the same text for as many steps: from 2.95 both come down about as far.
    assert theirs.val_loss == pytest.approx(ours.val_loss, abs=0.3)
    assert theirs.val_loss < 2.2


def test_hugging_faces_trainer_takes_bfloat16_where_the_cpu_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = find_device("cpu")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    compiled = replace(WORKLOAD, compiles=True)
    for dtypes, name, bf16 in (
        (("float32",), "HF Trainer eager", False),
        (("float32", "bfloat16"), "HF Trainer eager, bf16", True),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(trainers, "find_device", lambda _, d=dtypes: replace(cpu, native_dtypes=d))
            eager, other = hf_trainer(compiled)
        assert (eager.name, eager.options["bf16"]) == (name, bf16)
        assert (eager.options["compile"], other.options["compile"]) == (False, True)
        assert other.name == name.replace("eager", "compiled")


def test_hugging_faces_trainer_is_asked_for_where_it_can_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "accelerate" else name)
    with pytest.raises(
        ConfigError, match=r"needs accelerate, which[\s\S]*pip install transformers accelerate"
    ):
        run_rounds(
            WORKLOAD, rounds=1, peak=lambda: 1e11, others=Others(hf_trainer=True), text=None, said=print
        )
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    with pytest.raises(ConfigError, match="is for a CPU, and this workload is for cuda"):
        hf_trainer(WORKLOADS["gpt2-cuda"])


def test_whom_to_run_beside(gptwright: Command) -> None:
    for wrong in (
        ("--against=nanogpt",),
        ("--against=hf-trainer=x",),
        ("--against=nanogpt=a", "--against=nanogpt=b"),
    ):
        answer = gptwright("bench", *wrong)
        assert answer.status == 2
        assert f"{wrong[-1]} cannot be used" in answer.err
        assert "--against nanogpt=nanoGPT --against hf-trainer" in answer.err


def test_a_folder_that_is_no_checkout_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"it has no train\.py, model\.py, configurator\.py"):
        run_rounds(
            WORKLOAD, rounds=1, peak=lambda: 1e11, others=Others(nanogpt=tmp_path), text=None, said=print
        )


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_workloads_options_are_settings(name: str) -> None:
    work = WORKLOADS[name]
    options = {key: str(value) for key, value in work.options.items()} | {"device": work.device}
    config = load_config([], options).config
    assert work.warm_up < config.max_iters
    # A printed time of nanoGPT's is that of a step only where each step makes it wait for the device.
    assert work.device == "cpu" or config.log_interval == 1
    if work.preset:
        load_config([work.preset], {})

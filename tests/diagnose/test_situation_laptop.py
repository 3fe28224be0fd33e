"""The laptop's loss is worse than the GPU's: is the laptop at fault?"""

import json
import math
from pathlib import Path

import pytest

from tests.diagnose.situations import (
    Cli,
    NanoGptLog,
    diagnosis,
    one,
    plan,
    text_of,
    write_config,
    write_facts,
)

SHAKESPEARE = {
    "device": "laptop CPU",
    "dataset": "shakespeare_char",
    "train_tokens": 1_003_854,
    "val_tokens": 111_540,
    "vocab_size": 65,
}
LAPTOP = {
    "eval_interval": 250,
    "eval_iters": 20,
    "dataset": "shakespeare_char",
    "gradient_accumulation_steps": 1,
    "batch_size": 12,
    "block_size": 64,
    "n_layer": 4,
    "n_head": 4,
    "n_embd": 128,
    "dropout": 0.0,
    "bias": False,
    "learning_rate": 1e-3,
    "max_iters": 2000,
    "lr_decay_iters": 2000,
    "min_lr": 1e-4,
    "warmup_iters": 100,
    "device": "cpu",
    "compile": False,
}
GPU = LAPTOP | {
    "eval_iters": 200,
    "batch_size": 64,
    "block_size": 256,
    "n_layer": 6,
    "n_head": 6,
    "n_embd": 384,
    "dropout": 0.2,
    "max_iters": 5000,
    "lr_decay_iters": 5000,
}
del GPU["device"], GPU["compile"]


def character_run(folder: Path, *, gpu: bool) -> Path:
    folder.mkdir(parents=True)
    settings = GPU if gpu else LAPTOP
    write_config(folder / "config.py", settings)
    write_facts(folder / "facts.toml", SHAKESPEARE | ({"device": "RTX 4070"} if gpu else {}))
    flops = 71e6 * 16384 if gpu else 5_168_640 * 768
    log = NanoGptLog(flops_per_step=flops, step_ms=37.3 if gpu else 116.0, eval_ms=4410.0 if gpu else 1389.0)
    if gpu:
        points = {
            0: (4.287, 4.282),
            500: (1.538, 1.739),
            1000: (1.27, 1.52),
            1750: (1.08, 1.4697),
            2500: (0.95, 1.51),
        }
        points |= {3500: (0.78, 1.60), 5000: (0.62, 1.70)}
    else:
        points = {
            0: (4.168, 4.165),
            250: (2.50, 2.51),
            500: (2.25, 2.28),
            1000: (1.98, 2.07),
            2000: (1.76, 1.89),
        }
    steps = sorted(points)
    for step in range(0, steps[-1] + 1, 10):
        place = max(s for s in steps if s <= step)
        after = min(s for s in steps if s >= step)
        share = 0.0 if after == place else (step - place) / (after - place)
        train, val = (a + share * (b - a) for a, b in zip(points[place], points[after], strict=True))
        if step % 250 == 0:
            log.evaluation(step, train, val)
        lift = 0.19 if gpu and step > 200 else -0.05 if not gpu and step > 200 else 0.0
        log.iteration(step, train + lift + 0.03 * math.sin(7.1 * step), evaluated=step % 250 == 0)
    log.write(folder / "log.txt")
    return folder


class TestLaptopAndGpu:
    @pytest.fixture
    def runs(self, tmp_path: Path) -> tuple[Path, Path]:
        return character_run(tmp_path / "laptop", gpu=False), character_run(tmp_path / "gpu", gpu=True)

    def test_how_far_each_came(self, gptwright: Cli, runs: tuple[Path, Path]) -> None:
        laptop, gpu = (diagnosis(gptwright, run)["run"] for run in runs)
        assert laptop["tokens_seen"] == 1_536_000
        assert gpu["tokens_seen"] == 81_920_000
        assert laptop["epochs"] == pytest.approx(1.53, abs=0.01)
        assert gpu["epochs"] == pytest.approx(81.6, abs=0.1)
        assert laptop["parameters"] == 795_904
        assert gpu["parameters"] == 10_646_784

    def test_five_settings_differ_and_the_device_explains_nothing(
        self, gptwright: Cli, runs: tuple[Path, Path]
    ) -> None:
        document = json.loads(gptwright("compare", str(runs[0]), str(runs[1]), "--json").out)
        fields = {difference["field"] for difference in document["differences"]}
        assert {"n_layer", "n_embd", "block_size", "batch_size", "dropout", "max_iters"} <= fields
        assert document["verdict"] in ("confounded", "not-comparable")
        said = one(document, "not-comparable")["message"]
        assert "a end at 1.54M tokens and those of b begin at 4.10M" in said
        assert "can move a loss: depth, width, heads, context, tokens per step, dropout, schedule." in said
        assert "Another device or compile leaves a loss as it is." in said

    def test_the_laptop_reached_what_this_configuration_gives_on_any_device(
        self, gptwright: Cli, runs: tuple[Path, Path]
    ) -> None:
        document = diagnosis(gptwright, runs[0])
        assert one(document, "at-reference")["severity"] == "good"
        assert "on any device" in one(document, "at-reference")["message"]
        assert "no overfitting" in one(document, "val-above-train")["message"]

    def test_no_run_over_these_characters_comes_to_one(self, gptwright: Cli, runs: tuple[Path, Path]) -> None:
        longer = ("--device", "laptop CPU", "--max_iters=10000", "--lr_decay_iters=10000")
        asked = {
            each["question"]: each["missing"]
            for each in plan(gptwright, runs[0] / "config.py", *longer)["unknown"]
        }
        assert "got below 1.47" in asked["What loss may be expected?"]

    def test_the_laptop_run_is_sound(self, gptwright: Cli, runs: tuple[Path, Path]) -> None:
        document = diagnosis(gptwright, runs[0])
        assert not [f for f in document["findings"] if f["severity"] in ("error", "warning")]
        ids = {f["id"] for f in document["findings"]}
        assert not ids & {"overfitting", "above-reference", "below-reference", "val-below-train"}

    def test_the_gpu_run_overfitted_and_more_steps_make_it_worse(
        self, gptwright: Cli, runs: tuple[Path, Path]
    ) -> None:
        document = diagnosis(gptwright, runs[1])
        found = one(document, "overfitting")
        assert "1750" in text_of(found)
        assert document["run"]["best_val_loss"] == pytest.approx(1.4697)
        assert "still-improving" not in {f["id"] for f in document["findings"]}
        assert one(document, "many-epochs")["severity"] == "warning"

    def test_lines_after_an_evaluation_include_it(self, gptwright: Cli, runs: tuple[Path, Path]) -> None:
        found = one(diagnosis(gptwright, runs[1]), "eval-in-timing")
        assert found["confidence"] == "certain"
        assert any(e["source"].startswith("log:") and e["value"] > 4 for e in found["evidence"])

    def test_the_mfu_of_each_is_its_own(self, gptwright: Cli, runs: tuple[Path, Path]) -> None:
        laptop, gpu = (diagnosis(gptwright, run) for run in runs)
        assert gpu["run"]["mfu"] == pytest.approx(0.535, abs=0.01)
        assert laptop["run"]["mfu"] is None
        assert laptop["run"]["peak_tflops"] is None
        on_a_ti = diagnosis(gptwright, runs[1], "--device", "RTX 4070 Ti")
        assert on_a_ti["run"]["mfu"] == pytest.approx(0.389, abs=0.01)

    def test_dropout_lifts_the_lines_of_the_gpu_run_only(
        self, gptwright: Cli, runs: tuple[Path, Path]
    ) -> None:
        laptop, gpu = (diagnosis(gptwright, run) for run in runs)
        assert one(gpu, "dropout-in-train-loss")
        assert "dropout-in-train-loss" not in {f["id"] for f in laptop["findings"]}

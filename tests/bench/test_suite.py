"""The whole of `bench gpu` in a tiny form on a CPU: every part of it but CUDA itself."""

import io
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rich.console import Console

from gptwright.bench import budget, cases, suite
from gptwright.bench.budget import run_suite
from gptwright.bench.cases import step_seconds
from gptwright.bench.found import NANOGPT, OURS, AttentionTime, Measured, SuiteResult
from gptwright.bench.race import steps_in
from gptwright.bench.results import Peaks
from gptwright.bench.suite import GPU, Case, Race, Suite
from gptwright.config.load import load_config
from gptwright.errors import ConfigError
from gptwright.report.bench import show_suite
from tests.conftest import Answer

Command = Callable[..., Answer]
TINY = {"block_size": 16, "n_layer": 1, "n_head": 2, "n_embd": 32, "dropout": 0.0}
MAIN = Case(model="tiny", micro_batch=4, compiled=False)
RECIPE = Case(model="tiny", micro_batch=4, compiled=False, preset="shakespeare")
SMALL = Suite(
    about="a model of next to nothing",
    minutes=2.0,
    device="cpu",
    models={"tiny": TINY},
    first=(MAIN, RECIPE),
    race=Race(ours=RECIPE, theirs=MAIN, seconds=20.0, eval_iters=2, spare_seconds=15.0),
    later=(
        Case(model="tiny", micro_batch=8, compiled=False, only_ours={"loss_chunk": 16}),
        Case(model="tiny", micro_batch=1024, compiled=False),
        Case(model="tiny", micro_batch=2, compiled=True),
    ),
    tokenizer="char",
    warm_up=2,
    last_step=12,
    log_interval=2,
    guess_seconds=(1.0, 1e6),
)
# Trains nothing, but takes options, sleeps, runs out of memory and prints as nanoGPT does.
STAND_IN = """
import sys, time
options = dict(argument[2:].split("=", 1) for argument in sys.argv[1:])
assert "out_of_memory" not in options and "loss_chunk" not in options
open(f"data/{options['dataset']}/train.bin", "rb").close()
if int(options["batch_size"]) > 1000:
    raise SystemExit("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB.")
interval = int(options["eval_interval"])
for step in range(int(options["max_iters"]) + 1):
    if step % interval == 0:
        print(f"step {step}: train loss 4.00, val loss {4 - step / 1000:.4f}")
    time.sleep(0.01)
    if step % int(options["log_interval"]) == 0:
        print(f"iter {step}: loss 3.0, time 99.00ms, mfu 1.00%")
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A checkout, nanoGPT's own where `NANOGPT` names one."""
    given = os.environ.get("NANOGPT")
    if given:
        return Path(given)
    for name in ("model.py", "configurator.py"):
        (tmp_path / name).write_text("")
    (tmp_path / "train.py").write_text(STAND_IN)
    return tmp_path


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(
        "".join(f"All the world's a stage, and {n} men and women players.\n" for n in range(3000))
    )
    return path


@pytest.mark.slow
@pytest.mark.parametrize("device", ["cpu", *(["cuda"] if torch.cuda.is_available() else [])])
def test_one_command_makes_a_file_and_tables(
    tmp_path: Path, place: Path, text: Path, gptwright: Command, monkeypatch: pytest.MonkeyPatch, device: str
) -> None:
    monkeypatch.setitem(suite.SUITES, "gpu", replace(SMALL, device=device))
    out = tmp_path / "found.json"
    begin = time.perf_counter()
    answer = gptwright(
        "bench", "gpu", "--against", f"nanogpt={place}", "--text", str(text), "--minutes=4", f"--out={out}"
    )
    assert answer.status == 0, answer.err
    assert time.perf_counter() - begin < 250
    found = json.loads(out.read_text())
    assert found["schema"] == "gptwright.bench.suite/1"
    assert found["machine"]["device"]
    assert found["matmul_flops"] > 1e8
    assert found["data"]["val_tokens"] > 1000
    assert found["spent_seconds"] < found["budget_seconds"] == 240
    cases = {(c["case"], c["trainer"]): c for c in found["cases"]}
    names = [(c.name, t) for c in (*SMALL.first, SMALL.later[0]) for t in (OURS, NANOGPT)]
    ours_alone = [(RECIPE.name, NANOGPT), (SMALL.later[0].name, NANOGPT)]
    for key in names:
        if key in ours_alone:
            assert key not in cases
            continue
        case = cases[key]
        assert case["status"] == "done", case["why"]
        tokens = case["micro_batch"] * TINY["block_size"]
        assert case["tokens_per_second"] == pytest.approx(tokens / case["step_seconds"])
        share = case["flops_per_token"] * case["tokens_per_second"] / found["matmul_flops"]
        assert case["mfu_of_measured_peak"] == pytest.approx(share)
        assert device == "cuda" or case["mfu_of_tabled_peak"] is None
        # What stands in for nanoGPT holds nothing on a card.
        assert case["device_bytes"] > 1e6 or (device == "cuda" and key[1] == NANOGPT)
    assert cases[MAIN.name, OURS]["flops_per_token"] == cases[MAIN.name, NANOGPT]["flops_per_token"]
    if "NANOGPT" not in os.environ:
        # The pace is that of the lines' arrival, whatever the trainer prints of itself.
        assert 0.009 < cases[MAIN.name, NANOGPT]["step_seconds"] < 0.08
        assert cases[SMALL.later[1].name, NANOGPT]["status"] == "out of memory"
        assert "Tried to allocate" in cases[SMALL.later[1].name, NANOGPT]["why"]
    left_out = {each["what"] for each in found["left_out"]}
    assert {f"{SMALL.later[2].name}: {trainer}" for trainer in (OURS, NANOGPT)} <= left_out
    ratio = next(r for r in found["ratios"] if r["case"] == MAIN.name)
    rates = (cases[MAIN.name, trainer]["tokens_per_second"] for trainer in (OURS, NANOGPT))
    assert ratio["tokens_per_second"] == pytest.approx(next(rates) / next(rates))

    ours, theirs = found["race"]
    assert (ours["trainer"], theirs["trainer"]) == (OURS, NANOGPT)
    for racer in (ours, theirs):
        assert racer["wall_seconds"] < 23
        assert racer["planned_steps"] % 4 == 0
        seen = 4 * TINY["block_size"] * (racer["last_step"] + 1)
        assert racer["passes"] == pytest.approx(seen / found["data"]["train_tokens"])
        assert racer["val_loss"] is not None, racer["why"]
    assert ours["val_loss"] < 2.5
    assert ours["val_loss_standard_error"] > 0
    assert "whole validation split" in ours["measured_by"]
    assert "own last evaluation" in theirs["measured_by"]
    assert theirs["val_loss"] == theirs["evaluations"][-1][2]

    for seen in (
        "attention of one layer",
        "× nanoGPT",
        "race: the same data",
        "left out: tiny, micro-batch 2",
    ):
        assert seen in answer.out
    assert set(found["attention"][0]["seconds"]) == {"default", "flash", "cudnn", "efficient"}
    assert found["attention"][0]["seconds"]["default"] > 0
    assert device == "cuda" or found["attention"][0]["seconds"]["cudnn"] is None


PEAKS = Peaks(machine={"device": "H100", "threads": 1}, dtype="bfloat16", matmul_flops=120.0, bandwidth=1.0)


@pytest.mark.slow
def test_a_small_budget_is_kept_and_what_is_left_out_is_named(
    tmp_path: Path, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever hangs is killed at the end of the budget. Ours prints as nanoGPT does, and starts at once."""
    for name in ("model.py", "configurator.py"):
        (tmp_path / name).write_text("")
    (tmp_path / "train.py").write_text("import time\ntime.sleep(600)\n")
    (tmp_path / "ours.py").write_text(
        "for step in range(0, 13, 2):\n    print(f'iter {step}: loss 3.0, time 9ms')\n"
    )
    monkeypatch.setitem(cases.COMMANDS, OURS, (sys.executable, str(tmp_path / "ours.py")))
    monkeypatch.setattr(budget, "measure_peaks", lambda _: PEAKS)
    monkeypatch.setattr(budget, "time_attention", lambda _, __, shape: AttentionTime(shape=shape, seconds={}))
    begin = time.perf_counter()
    found = run_suite(SMALL, seconds=25, nanogpt=tmp_path, text=text, said=print)
    assert time.perf_counter() - begin < 30
    assert found.spent_seconds < 27
    named = [each.what for each in found.left_out]
    assert "race" in named
    ran = [(m.case, m.trainer) for m in found.cases]
    for case in (*SMALL.first, *SMALL.later):
        for trainer in (OURS, NANOGPT) if case.beside_nanogpt else (OURS,):
            assert ((case.name, trainer) in ran) != (f"{case.name}: {trainer}" in named)
    assert found.cases[0].status == "done"
    hung = next(m for m in found.cases if m.trainer == NANOGPT)
    assert (hung.status, hung.tokens_per_second) == ("out of time", None)


def test_a_pace_is_the_median_between_lines_after_warm_up() -> None:
    arrivals = [(0, 5.0), (10, 9.0), (20, 10.0), (30, 11.0), (40, 17.0), (50, 18.0)]
    assert step_seconds(arrivals, warm_up=10) == pytest.approx(0.1)
    assert step_seconds(arrivals[:2], warm_up=10) is None


def test_the_race_knows_both_paces_and_fits_into_ten_minutes() -> None:
    assert GPU.race is not None
    assert GPU.race.ours in GPU.first
    assert GPU.race.theirs in GPU.first
    assert GPU.race.theirs.beside_nanogpt
    # Three minutes for the race itself, and ten for everything.
    assert 2 * GPU.race.seconds == 180
    assert GPU.race.needed_seconds < 0.6 * 600


def test_every_case_has_settings_that_both_understand() -> None:
    for case in (*GPU.first, *GPU.later):
        options = {**GPU.models[case.model], "batch_size": case.micro_batch, **case.only_ours}
        if case.preset:
            config = load_config(
                [case.preset],
                {"tokens_per_step": str(case.micro_batch * 1024), "batch_size": str(case.micro_batch)},
            ).config
            assert config.n_layer == GPU.models[case.model]["n_layer"]
            assert config.n_embd == GPU.models[case.model]["n_embd"]
        else:
            load_config([], {name: str(value) for name, value in options.items()})


def test_what_cannot_be_beside_the_suite_is_refused(tmp_path: Path, gptwright: Command) -> None:
    for wrong in (("gpu", "laptop"), ("gpu", "--against=hf-trainer")):
        answer = gptwright("bench", *wrong)
        assert answer.status == 2
        assert "gpu takes no other workload" in answer.err
    with pytest.raises(ConfigError, match="is no checkout of nanoGPT"):
        run_suite(SMALL, seconds=60, nanogpt=tmp_path, text=None, said=print)


CASE = Measured(
    case="a", model="m", micro_batch=1, compiled=True, for_both=True, trainer=OURS, status="done", why=None,
    wall_seconds=9.0, start_seconds=8.0, step_seconds=0.1, tokens_per_second=10.0, flops_per_token=6,
    device_bytes=30,
)  # fmt: skip


def test_the_fastest_of_each_are_of_what_both_can_do() -> None:
    result = SuiteResult(
        peaks=PEAKS, tabled_peak=240.0, tabled_name="H100 SXM", device_bytes=100, budget_seconds=600.0
    )
    theirs = replace(CASE, trainer=NANOGPT, tokens_per_second=5.0, device_bytes=60)
    result.cases = [
        CASE,
        theirs,
        replace(CASE, case="b", tokens_per_second=8.0),
        replace(CASE, case="c", for_both=False, tokens_per_second=99.0),
        replace(CASE, case="b", trainer=NANOGPT, status="out of memory", tokens_per_second=None),
    ]
    assert result.fastest("m", OURS) is CASE
    assert result.fastest("m", NANOGPT) is theirs
    document = result.document()
    assert document["ratios"] == [{"case": "a", "tokens_per_second": 2.0, "device_bytes": 0.5}]
    first = document["cases"][0]
    assert (first["mfu_of_measured_peak"], first["mfu_of_tabled_peak"]) == (0.5, 0.25)
    assert document["cases"][-1]["mfu_of_measured_peak"] is None
    console = Console(file=io.StringIO(), width=160)
    show_suite(console, result)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "H100 SXM on paper" in shown
    assert "makes 2.00 × the tokens/s" in shown
    assert "out of memory" in shown


def test_a_schedule_leaves_time_for_what_is_no_step() -> None:
    assert steps_in(90, CASE) == 672
    assert steps_in(9, CASE) == 0
    assert steps_in(90, replace(CASE, start_seconds=200.0)) == 0

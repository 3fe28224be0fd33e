"""The runs that people handed over: what their logs say is found. Needs ../shared/cases."""

import math
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gptwright.record.evidence import LogEvidence
from gptwright.record.open_run import open_run
from tests.conftest import SHARED

CASES = SHARED / "cases"
FOLDERS = sorted(
    path.parent
    for name in ("log.txt", "trainer_state.json")
    for path in CASES.glob(f"**/{name}")
    if (path.parent / "expect.toml").is_file()
)
pytestmark = pytest.mark.skipif(not FOLDERS, reason="needs ../shared/cases")

# What each header says; the contract's `run.parameters` follows from it elsewhere.
HEADERS: dict[str, dict[str, Any]] = {
    "chat-4070-capture": {
        "device": "NVIDIA GeForce RTX 4070",
        "parameters_total": 286_261_730,
        "tokens_per_step": 65_536,
        "gradient_accumulation_steps": 4,
        "micro_batch": 8,
        "block_size": 2048,
        "flops_per_token": 8.870961e8,
        "planned_steps": 87_000,
        "world_size": 1,
    },
    "edu-h800-shards": {"decayed_parameters": 124_354_560, "not_decayed_parameters": 121_344, "fused": True},
    "litgpt-a100": {
        "parameters_total": 162_322_944,
        "gradient_accumulation_steps": 32,
        "training_seconds": 22680.0,
    },
    "llmc-4090": {
        "parameters_total": 124_475_904,
        "n_embd": 768,
        "mfu_peak_flops": 165.2e12,
        "tokens_per_step": 524_288,
        "gradient_accumulation_steps": 32,
    },
    "modded-h100": {"planned_steps": 4578},
    "oom-eager": {"parameters": 123_590_000, "device_memory_bytes": round(15.78 * 2**30)},
    "story-resumed": {"tokens_per_step": 131_072, "gradient_accumulation_steps": 4, "micro_batch": 128},
    "titan-a100-blowup": {"parameters_total": 163_597_824, "world_size": 8, "mfu_peak_flops": 3.12e14},
    "char-cpu": {"parameters": 800_000, "parameters_rounding": 5000.0, "vocab_size": 65, "fused": False},
}
FORMATS = {
    "chat-4070-capture": "nanochat",
    "edu-h800-shards": "build-nanogpt",
    "hf-accum": "Hugging Face Trainer",
    "hf-state-finetune": "Hugging Face Trainer",
    "litgpt-a100": "litgpt",
    "llmc-4090": "llm.c",
    "modded-h100": "modded-nanogpt",
    "story-resumed": "llama2.c",
    "titan-a100-blowup": "torchtitan",
}


def expected(folder: Path) -> dict[str, Any]:
    run: dict[str, Any] = tomllib.loads((folder / "expect.toml").read_text("utf-8")).get("run", {})
    return run


def log_of(folder: Path) -> LogEvidence:
    log = open_run(str(folder)).log
    assert log is not None
    return log


def meets(actual: float, spec: Any) -> bool:
    if isinstance(spec, dict) and spec.get("null"):
        return math.isnan(actual)
    if isinstance(spec, dict) and ("min" in spec or "max" in spec):
        return bool(spec.get("min", -math.inf) <= actual <= spec.get("max", math.inf))
    value = spec["value"] if isinstance(spec, dict) else spec
    return math.isclose(actual, value, abs_tol=0.001)


@pytest.fixture(params=FOLDERS, ids=lambda folder: folder.name)
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A case without what it expects, as a user hands it over."""
    source: Path = request.param
    folder = tmp_path / source.name
    folder.mkdir()
    for file in source.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    return folder


def test_steps_and_losses(case: Path) -> None:
    log, run = log_of(case), expected(case)
    steps = np.concatenate([log.train.step, log.evals.step])
    val = log.evals.val_loss[np.isfinite(log.evals.val_loss)]
    best = int(np.nanargmin(log.evals.val_loss)) if len(val) else None
    found = {
        "first_step": float(steps.min()) if len(steps) else math.nan,
        "last_step": float(steps.max()) if len(steps) else math.nan,
        "last_val_loss": float(val[-1]) if len(val) else math.nan,
        "best_val_loss": float(val.min()) if len(val) else math.nan,
        "best_val_step": math.nan if best is None else float(log.evals.step[best]),
        "lines_skipped": float(log.lines_skipped),
    }
    wrong = {
        name: (found[name], run[name]) for name in found if name in run and not meets(found[name], run[name])
    }
    assert wrong == {}


def test_format_and_header(case: Path) -> None:
    log = log_of(case)
    assert log.format.name == FORMATS.get(case.name, "nanoGPT")
    said = {**log.header, **log.settings}
    header = HEADERS.get(case.name, {})
    assert {name: said[name].value for name in header} == header


def test_nothing_is_skipped_but_what_is_damaged(case: Path) -> None:
    log = log_of(case)
    assert log.lines_skipped == (1 if case.name == "web-mi300x-tail" else 0)
    assert log.hazards.get("text glued to a line", 0) == (1 if case.name == "web-mi300x-tail" else 0)
    assert log.hazards.get("joined wrapped lines", 0) == (170 if case.name == "chat-4070-capture" else 0)


def test_the_resumed_run_has_two_segments() -> None:
    log = log_of(CASES / "story-resumed")
    assert sorted(set(log.train.segment)) == [0, 1]
    assert log.last_run_segment == 0

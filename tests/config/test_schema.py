"""Every field is described, and every field is read by something."""

import re
from dataclasses import asdict
from pathlib import Path

import pytest

import gptwright
from gptwright.config.load import load_config
from gptwright.config.schema import FIELDS, TrainConfig, warnings_of

SOURCES = [path.read_text("utf-8") for path in Path(gptwright.__file__).parent.rglob("*.py")]

# nanoGPT's train.py, commit 3adf61e: a config that says nothing must mean the same here.
NANOGPT_DEFAULTS = {
    "out_dir": "out", "eval_interval": 2000, "log_interval": 1, "eval_iters": 200, "eval_only": False,
    "init_from": "scratch", "dataset": "openwebtext", "gradient_accumulation_steps": 40, "batch_size": 12,
    "block_size": 1024, "n_layer": 12, "n_head": 12, "n_embd": 768, "dropout": 0.0, "bias": False,
    "learning_rate": 6e-4, "max_iters": 600000, "weight_decay": 1e-1, "beta1": 0.9, "beta2": 0.95,
    "grad_clip": 1.0, "decay_lr": True, "warmup_iters": 2000, "lr_decay_iters": 600000, "min_lr": 6e-5,
}  # fmt: skip


def test_defaults_are_nanogpts() -> None:
    config = asdict(TrainConfig())
    assert {name: config[name] for name in NANOGPT_DEFAULTS} == NANOGPT_DEFAULTS


@pytest.mark.parametrize("name", FIELDS)
def test_every_field_is_described_and_read(name: str) -> None:
    assert FIELDS[name].description
    reading = re.compile(rf"(config|loaded\.config)\.{name}\b|self\.{name}\b")
    assert any(map(reading.search, SOURCES)), f"nothing reads {name}"


def test_warnings_name_what_nanogpt_lets_pass() -> None:
    config = load_config([], {"min_lr": "1", "warmup_iters": "500", "max_iters": "100"}).config
    assert [warning.split(" ")[0] for warning in warnings_of(config)] == [
        "min_lr",
        "warmup_iters",
        "lr_decay_iters",
    ]
    assert "try --warmup_iters=5" in warnings_of(config)[1]


def test_no_warnings_for_a_constant_rate_or_a_sound_schedule() -> None:
    assert warnings_of(load_config([], {"decay_lr": "False", "min_lr": "1"}).config) == []
    assert warnings_of(load_config(["shakespeare-char"]).config) == []
    flat = load_config(["shakespeare-char"], {"min_lr": "1e-3"}).config
    assert warnings_of(flat) == ["min_lr = 0.001 is learning_rate: nothing decays (try --min_lr=0.0001)"]

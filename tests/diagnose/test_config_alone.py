"""A config without a log: what it says of itself, and what it leaves open."""

from pathlib import Path

import pytest

from gptwright.diagnose.engine import diagnose
from gptwright.diagnose.judging import Diagnosis
from gptwright.diagnose.reading import read_run
from gptwright.record.open_run import open_run


def read(folder: Path, config: str, name: str = "config.py") -> Diagnosis:
    (folder / name).write_text(config)
    return diagnose(read_run(open_run(str(folder / name))))


def test_what_a_python_config_leaves_out_is_nanogpts(tmp_path: Path) -> None:
    diagnosis = read(tmp_path, "dataset = 'openwebtext'\nbatch_size = 12\nmax_iters = 5000\n")
    sizes, speed, progress = diagnosis.reading.sizes, diagnosis.reading.speed, diagnosis.reading.progress
    assert sizes.parameters is not None
    assert sizes.parameters.value == 123_587_328
    assert speed.tokens_per_step is not None
    assert speed.tokens_per_step.value == 12 * 40 * 1024
    assert progress.planned_tokens is not None
    assert progress.planned_tokens.value == 5000 * 12 * 40 * 1024
    mismatch = next(finding for finding in diagnosis.findings if finding.id == "schedule-mismatch")
    assert "the decay is planned over 600,000 steps and the run ends at 5,000" in mismatch.message


def test_what_a_config_alone_leaves_open(tmp_path: Path) -> None:
    diagnosis = read(tmp_path, "dataset = 'mine'\nbatch_size = 12\nmax_iters = 5000\nn_embd = 384\n")
    assert diagnosis.reading.sizes.parameters is None
    asked = {unknown.question for unknown in diagnosis.unknown}
    assert asked >= {"How fast is it, and what does it reach?", "How large is the model?"}


def test_a_config_of_something_else_is_not_nanogpts(tmp_path: Path) -> None:
    diagnosis = read(tmp_path, "batch_size = 12\nhidden_size = 384\n")
    assert diagnosis.reading.progress.planned_steps is None


@pytest.mark.parametrize("value", ["None", "0", "-1", "True", "'12'", "1e999", "2.5"])
@pytest.mark.parametrize(
    "name", ["n_layer", "n_head", "n_embd", "block_size", "batch_size", "vocab_size", "max_iters"]
)
def test_a_value_that_a_setting_cannot_have_is_no_value(tmp_path: Path, name: str, value: str) -> None:
    settings = {"n_layer": "12", "n_head": "12", "n_embd": "768", "block_size": "1024", "batch_size": "12"}
    settings |= {
        "gradient_accumulation_steps": "40",
        "max_iters": "600000",
        "warmup_iters": "2000",
        name: value,
    }
    config = "".join(
        f"{field} = {text}  # 124M, 5 % of the run, 64 per head\n" for field, text in settings.items()
    )
    assert name not in read(tmp_path, config).reading.settings.given


def test_a_comment_may_claim_nothing(tmp_path: Path) -> None:
    config = (
        "n_layer = 12\nn_embd = 768\nblock_size = 1024\nmax_iters = 600000\n"
        "batch_size = 12\ngradient_accumulation_steps = 40  # 0 tokens per step\n"
        "warmup_iters = 2000  # 0% warmup\n"
    )
    stale = [finding.message for finding in read(tmp_path, config).findings if finding.id == "stale-comment"]
    assert stale == [
        "A comment says 0 tokens per step; the values give 491,520 (batch_size 12 × accumulation 40"
        " × block_size 1024).",
        "A comment says 0 % warmup; the values give 0.3333 (percent: warmup_iters / max_iters).",
    ]

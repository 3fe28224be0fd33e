"""How fast two runs are beside each other, and what may be credited for it."""

from pathlib import Path
from typing import Any

import pytest

from gptwright.diagnose.compare import Comparison, compare
from gptwright.diagnose.reading import read_run
from gptwright.findings import Finding
from gptwright.record.open_run import open_run


def a_run(folder: Path, *, ms: float, device: str = "RTX 4070", **settings: object) -> Path:
    """A run of nanoGPT with so many milliseconds a step."""
    folder.mkdir()
    values: dict[str, object] = {
        "dataset": "openwebtext",
        "batch_size": 16,
        "gradient_accumulation_steps": 32,
        "block_size": 1024,
        "n_layer": 12,
        "n_head": 12,
        "n_embd": 384,
        "learning_rate": 1e-3,
        "max_iters": 1000,
    } | settings
    lines = []
    for step in range(0, 1001, 20):
        if step % 250 == 0:
            lines.append(
                f"step {step}: train loss {3 + 800 / (step + 100):.4f}, val loss {3 + 800 / (step + 100):.4f}"
            )
        else:
            lines.append(f"iter {step}: loss {3 + 800 / (step + 100):.4f}, time {ms:.2f}ms, mfu -100.00%")
    (folder / "log.txt").write_text("\n".join(lines) + "\n")
    (folder / "config.py").write_text("".join(f"{name} = {value!r}\n" for name, value in values.items()))
    (folder / "facts.toml").write_text(f'device = "{device}"\n')
    return folder


def compared(a: Path, b: Path) -> Comparison:
    return compare(read_run(open_run(str(a))), read_run(open_run(str(b))))


def pace(found: Comparison) -> Finding:
    return next(finding for finding in found.findings if finding.id == "speed-difference")


def test_a_micro_batch_of_half_the_sequences_is_no_measure(tmp_path: Path) -> None:
    wide: dict[str, Any] = {"n_embd": 768, "batch_size": 8, "gradient_accumulation_steps": 64}
    found = compared(a_run(tmp_path / "a", ms=3909), a_run(tmp_path / "b", ms=9340, **wide))
    text = pace(found).message
    assert text.startswith("a trains 2.4 times as many tokens a second as b (134,123 in a and 56,134 in b)")
    assert "b has 3 times the parameters" in text
    assert "69.0 % and 82.3 %" in text
    assert "a sequence takes 7.63 ms and 18.24 ms" in text
    assert "model and micro-batch were changed: which did how much takes a run of each" in text
    assert found.reasons == ("both take 524,288 tokens a step: 16 × 32 and 8 × 64 are two cuts of one batch",)


def test_one_change_is_named(tmp_path: Path) -> None:
    found = compared(
        a_run(tmp_path / "a", ms=900, compile=False), a_run(tmp_path / "b", ms=500, compile=True)
    )
    assert "only the compilation was changed" in pace(found).message


@pytest.mark.parametrize("ms", [500.0, 510.0])
def test_times_that_scatter_are_no_difference(tmp_path: Path, ms: float) -> None:
    found = compared(a_run(tmp_path / "a", ms=500), a_run(tmp_path / "b", ms=ms))
    assert "speed-difference" not in {finding.id for finding in found.findings}


def test_a_share_beyond_the_peak_is_not_repeated(tmp_path: Path) -> None:
    found = compared(a_run(tmp_path / "a", ms=500), a_run(tmp_path / "b", ms=3900))
    assert "MFU" not in pace(found).message


def test_shares_of_two_peaks_name_them(tmp_path: Path) -> None:
    found = compared(
        a_run(tmp_path / "a", ms=9000, device="RTX 4070"),
        a_run(tmp_path / "b", ms=9000 / 2, device="RTX 4090"),
    )
    assert "their MFU is 30.0 % of 58.3 TFLOP/s and 21.2 % of 165.2 TFLOP/s" in pace(found).message

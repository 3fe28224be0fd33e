"""MFU where a log prints a count of parameters and a speed, and nothing of the model's shape."""

from pathlib import Path

import pytest

from gptwright.diagnose.reading import Reading, read_run
from gptwright.record.open_run import open_run


def reading(folder: Path, log: str, device: str) -> Reading:
    (folder / "log.txt").write_text(log)
    return read_run(open_run(str(folder), {"device": device}))


def test_six_flops_a_parameter_where_no_shape_is_known(tmp_path: Path) -> None:
    steps = "".join(f"[Step {n}0] Loss: {9 - n / 5} | Tokens/s: 21,000\n" for n in range(9))
    run = reading(tmp_path, "Model parameters: 51.48M\n" + steps, "RTX 3060")
    assert run.speed.achieved_flops is not None
    assert run.speed.achieved_flops.number == pytest.approx(6 * 51.48e6 * 21_000)
    assert run.mfu is not None
    assert run.mfu.number == pytest.approx(6 * 51.48e6 * 21_000 / 25.5e12, rel=0.01)
    assert run.sizes.flops_per_token is not None
    assert "attention is not counted" in run.sizes.flops_per_token.reason


def test_a_count_that_only_one_of_gpt2s_sizes_has_tells_the_shape(tmp_path: Path) -> None:
    steps = "".join(
        f"step   {n}/74 | loss 3.{n}00000 (+nanz)| norm 1.48 (+nanz)| lr 3.00e-04 | 44.57 ms"
        " | -100.0% bf16 MFU | 91886 tok/s\n"
        for n in range(60, 70)
    )
    run = reading(tmp_path, "| num_parameters        | 124475904 |\n" + steps, "RTX 5090")
    assert run.sizes.shape is not None
    assert (run.sizes.shape.n_layer, run.sizes.shape.vocab_size, run.sizes.shape.bias) == (12, 50304, True)
    assert run.mfu is not None
    assert 0.33 < run.mfu.number < 0.39

"""MFU where a log prints a count of parameters and a speed, and nothing of the model's shape."""

from pathlib import Path

import pytest

from gptwright.diagnose.engine import diagnose
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


LLMC = """| micro batch size B    | 16                                                 |
| sequence length T     | 1024                                               |
| total batch size      | 524288                                             |
| device                | NVIDIA GeForce RTX 4090                            |
| peak TFlops           | 165.2                                              |
| num_parameters        | 124475904                                          |
"""


def batch_mismatch(folder: Path, log: str, **stated: str) -> list[str]:
    (folder / "log.txt").write_text(log)
    run = read_run(open_run(str(folder), stated))
    return [finding.message for finding in diagnose(run).findings if finding.id == "batch-mismatch"]


def llmc_lines(mfu: float, rate: int) -> str:
    return "".join(
        f"step {n:4d}/5000 | loss {9 - n / 50:.6f} (+nanz)| norm 1.48 (+nanz)| lr 3.00e-04 | 4172.00 ms"
        f" | {mfu:.1f}% bf16 MFU | {rate} tok/s\n"
        for n in range(1, 60)
    )


def test_an_mfu_beside_a_rate_says_nothing_of_the_batch(tmp_path: Path) -> None:
    """llm.c's rate × time is the batch of its table; its MFU hangs on the peak that it knows."""
    assert batch_mismatch(tmp_path, LLMC + llmc_lines(30.0, 125_668)) == []


def test_a_rate_that_is_of_another_batch(tmp_path: Path) -> None:
    (message,) = batch_mismatch(tmp_path, LLMC + llmc_lines(64.8, 62_834))
    assert "262,143 tokens a step, 1/2 times the 524,288" in message


def test_a_rate_of_one_of_several_devices_is_no_contradiction(tmp_path: Path) -> None:
    assert batch_mismatch(tmp_path, LLMC + llmc_lines(64.8, 62_834), device_count="2") == []


def test_the_time_of_a_micro_batch_is_told_by_the_rate(tmp_path: Path) -> None:
    config = "batch_size = 16\nblock_size = 1024\ngradient_accumulation_steps = 8\n"
    (tmp_path / "config.py").write_text(config)
    lines = (f"step {n} | loss {9 - n / 50:.4f} | dt: 100.00ms | tok/s: 163840 (mine)\n" for n in range(60))
    (tmp_path / "log.txt").write_text("".join(lines))
    run = read_run(open_run(str(tmp_path)))
    (found,) = (finding for finding in diagnose(run).findings if finding.id == "batch-mismatch")
    assert "16,384 tokens a step, 1/8 times the 131,072" in found.message
    assert found.causes[0].text == "the printed time is that of one micro-batch, not of a step"
    assert run.speed.tokens_per_second is not None
    assert run.speed.tokens_per_second.value == 163_840


@pytest.mark.parametrize(
    ("line", "rate"),
    [
        ("step {0} loss 3.2 48.3k tok/s 2.71 s/it", 48_300),
        ("step {0} loss 3.2 tok/s 48000 1.2 it/s", 48_000),
        ("step {0} loss 3.2 tok/s: 48,000", 48_000),
    ],
)
def test_a_number_on_either_side_of_a_unit(tmp_path: Path, line: str, rate: float) -> None:
    run = reading(tmp_path, "".join(line.format(n) + "\n" for n in range(9)), "RTX 3060")
    assert run.speed.tokens_per_second is not None
    assert run.speed.tokens_per_second.number == rate
    assert run.speed.tokens_per_step is None

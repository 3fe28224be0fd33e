"""Hugging Face's names for settings, and what its accumulation means on several devices."""

from pathlib import Path

import pytest

from gptwright.diagnose.reading import read_run
from gptwright.record.open_run import open_run

OWN_NAMES = (
    "per_device_train_batch_size = 8\ngradient_accumulation_steps = 4\nmax_seq_length = 512\n"
    "max_steps = 3000\nlr = 5e-4\nwarmup_steps = 100\nhidden_size = 512\n"
    "num_hidden_layers = 6\nnum_attention_heads = 8\n"
)


@pytest.mark.parametrize(("devices", "tokens"), [(1, 8 * 4 * 512), (2, 2 * 8 * 4 * 512)])
def test_each_device_accumulates_by_itself(tmp_path: Path, devices: int, tokens: int) -> None:
    lines = [
        f"{{'loss': {9 - n / 100:.4f}, 'grad_norm': 0.8, 'learning_rate': 0.0004, 'epoch': {n / 100:.2f}}}"
        for n in range(1, 60)
    ]
    (tmp_path / "log.txt").write_text("\n".join(lines) + "\n")
    (tmp_path / "config.py").write_text(OWN_NAMES)
    (tmp_path / "facts.toml").write_text(f'device_count = {devices}\ndevice = "RTX 4090"\n')
    reading = read_run(open_run(str(tmp_path)))
    assert reading.speed.tokens_per_step is not None
    assert reading.speed.tokens_per_step.number == tokens
    settings = reading.settings
    numbers = [
        settings.number(name) for name in ("learning_rate", "warmup_iters", "n_embd", "n_layer", "n_head")
    ]
    assert numbers == [5e-4, 100, 512, 6, 8]


def test_nanogpts_names_mean_all_devices(tmp_path: Path) -> None:
    lines = [f"iter {n}: loss {9 - n / 100:.4f}, time 100.00ms" for n in range(0, 600, 10)]
    (tmp_path / "log.txt").write_text("\n".join(lines) + "\n")
    (tmp_path / "config.py").write_text("batch_size = 8\ngradient_accumulation_steps = 4\nblock_size = 512\n")
    (tmp_path / "facts.toml").write_text("device_count = 2\n")
    reading = read_run(open_run(str(tmp_path)))
    assert reading.speed.tokens_per_step is not None
    assert reading.speed.tokens_per_step.number == 8 * 4 * 512


def test_passes_over_stated_data_are_tokens_where_no_step_is_printed(tmp_path: Path) -> None:
    lines = [
        f"{{'loss': {6 - n / 50:.3f}, 'grad_norm': 0.8, 'learning_rate': 0.0001, 'epoch': {n / 30:.2f}}}\n"
        for n in range(1, 61)
    ]
    (tmp_path / "log.txt").write_text("".join(lines))
    (tmp_path / "facts.toml").write_text("train_tokens = 49152000\n")
    progress = read_run(open_run(str(tmp_path))).progress
    assert progress.tokens_seen is not None
    assert progress.tokens_seen.value == 98_304_000
    assert progress.last_step is None


def test_a_dict_may_say_its_step_itself(tmp_path: Path) -> None:
    lines = [
        f"{{'loss': {3 - n / 200:.4f}, 'grad_norm': 1.1, 'learning_rate': 9e-05, 'epoch': {n / 150:.2f},"
        f" 'global_step/max_steps': '{n}/450', 'percentage': '{n / 4.5:.2f}%', 'elapsed_time': '1m 2s'}}\n"
        for n in range(5, 300, 5)
    ]
    (tmp_path / "log.txt").write_text("".join(lines))
    reading = read_run(open_run(str(tmp_path)))
    progress = reading.progress
    assert reading.train is not None
    assert set(reading.train.segment) == {0}
    assert progress.last_step is not None
    assert progress.last_step.value == 295
    assert progress.planned_steps is not None
    assert progress.planned_steps.value == 450


def test_a_bar_behind_a_dict_of_rewards_tells_its_step(tmp_path: Path) -> None:
    bar = " 10%|#  | {}/200 [00:07<05:52,  1.39it/s]\r"
    text = bar.format(1)
    for step in range(1, 9):
        # The bar is drawn at most ten times a second, but anew behind each dict.
        text += f"{{'loss': 0.0, 'learning_rate': 1e-06, 'reward': 0.{step}, 'epoch': 0.{step}}}\n"
        text += bar.format(step)
    (tmp_path / "log.txt").write_text(text)
    train = read_run(open_run(str(tmp_path))).train
    assert train is not None
    assert list(train.step) == list(range(1, 9))

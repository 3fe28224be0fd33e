"""A run of a million recorded steps: its report is quick to make, small to mail, quick to use, and whole."""

import random
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Answer
from tests.report.conftest import Open
from tests.report.test_page import assert_drawn, data_of

STEPS = 1_000_000
SPIKES = {123_456: 21.5, 700_001: 17.25, 999_990: 12.125}
# What is promised is 5 s and 2 s on a quiet core (docs/performance.md); a machine of CI has other work.
MOST_SECONDS, MOST_READY_MS, MOST_BYTES = 30, 6_000, 3_000_000


def write_metrics(path: Path) -> None:
    """The record as `train` writes it, every digit included."""
    rng = random.Random(1)
    with path.open("w", encoding="utf-8") as file:
        file.write(
            '{"v": 1, "kind": "start", "time": 1.5, "step": 0, "tokens_per_step": 16384, "vocab_size": 50304,'
            ' "parameters_nanogpt": 123590000, "device": "NVIDIA GeForce RTX 4090", "dtype": "bfloat16",'
            ' "peak_flops": 1.65e14, "max_iters": 1000000}\n'
        )
        for step in range(STEPS):
            loss = SPIKES.get(step, 3 + 6 * (step + 10) ** -0.3 + rng.random() * 0.2)
            if step % 5_000 == 0:
                file.write(
                    f'{{"v": 1, "kind": "eval", "time": 1.5, "step": {step}, "train_loss": {loss},'
                    f' "val_loss": {loss + 0.05}, "val_loss_standard_error": 0.004}}\n'
                )
            file.write(
                f'{{"v": 1, "kind": "train", "time": {1.7e9 + step / 5}, "step": {step}, "loss": {loss},'
                f' "loss_mean": {loss}, "lr": {6e-4 * (1 - step / STEPS)}, "grad_norm": {1 + rng.random()},'
                f' "seconds": {0.2 + rng.random() / 100}, "tokens_per_second": 81920.0, "mfu": 0.38,'
                f' "tokens": {16384 * (step + 1)}}}\n'
            )


@pytest.mark.slow
def test_a_million_steps(tmp_path: Path, gptwright: Callable[..., Answer], open_page: Open) -> None:
    write_metrics(tmp_path / "metrics.jsonl")
    begin = time.process_time()
    answer = gptwright("report", str(tmp_path / "metrics.jsonl"), "--out", str(tmp_path / "report.html"))
    seconds = time.process_time() - begin
    assert answer.status == 0
    assert seconds < MOST_SECONDS
    path = tmp_path / "report.html"
    size = path.stat().st_size
    assert size < MOST_BYTES
    every_line = data_of(path)["figures"][0]["curves"][1]
    drawn = dict(zip(every_line["x"], every_line["y"], strict=True))
    assert {step: drawn.get(step) for step in SPIKES} == SPIKES
    assert re.search(r"1,000,000 lines are drawn by", path.read_text("utf-8"))
    opened = open_page(path)
    assert_drawn(opened, path)
    ready = int(opened.page.locator("html").get_attribute("data-ready"))
    assert ready < MOST_READY_MS
    opened.page.locator("#plot-loss svg.plot").focus()
    zoomed = opened.page.evaluate(
        """() => {
          const begin = performance.now();
          charts.forEach((chart) => chart.zoom([100_000, 300_000]));
          return performance.now() - begin;
        }"""
    )
    assert zoomed < MOST_READY_MS
    print(
        f"report {seconds:.2f} s, {size:,} bytes, ready in {ready} ms, all charts zoomed in {zoomed:.0f} ms"
    )

"""A printed learning rate that is not the config's."""

import math
from pathlib import Path

import pytest

from gptwright.findings import Finding
from tests.diagnose.rules.nanogpt_run import found


def run(folder: Path, peak: float, first: int = 0) -> dict[str, Finding]:
    lines = [
        f"iter {step}: loss {3 + 700 / (step + 90):.4f}, lr {peak * min(1, step / 200):.6f}, time 300.00ms"
        for step in range(first, 3001, 10)
    ]
    (folder / "log.txt").write_text("\n".join(lines) + "\n")
    (folder / "config.py").write_text("learning_rate = 6e-4\nwarmup_iters = 200\n")
    return found(folder)


def test_half_of_it_behind_the_warm_up_is_another(tmp_path: Path) -> None:
    message = run(tmp_path, 3e-4)["config-mismatch"].message
    assert "learning_rate is 0.0006 by the config and 0.0003 in the log" in message


def test_its_own_is_none(tmp_path: Path) -> None:
    assert "config-mismatch" not in run(tmp_path, 6e-4)


def test_a_log_that_begins_later_may_have_missed_the_peak(tmp_path: Path) -> None:
    assert "config-mismatch" not in run(tmp_path, 4e-4, first=1000)


@pytest.mark.parametrize(("share", "said"), [(1.0, False), (0.3, True)])
def test_a_log_that_begins_in_the_decay_prints_lower_rates(tmp_path: Path, share: float, said: bool) -> None:
    """From step 3,000 of 5,000 on, a cosine to a tenth of 6e-4 has 2.4e-4 and less."""
    lines = []
    for step in range(3000, 5001, 20):
        rate = share * 6e-4 * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * step / 5000)))
        lines.append(f"{step} | loss {3.2 + 300 / step:.4f} | lr {rate:e} | 433.75ms | mfu 12.34%")
    (tmp_path / "log.txt").write_text("\n".join(lines) + "\n")
    settings = (
        "learning_rate = 6e-4\nwarmup_iters = 200\nlr_decay_iters = 5000\nmax_iters = 5000\nmin_lr = 6e-5\n"
    )
    (tmp_path / "config.py").write_text(settings)
    assert ("config-mismatch" in found(tmp_path)) is said

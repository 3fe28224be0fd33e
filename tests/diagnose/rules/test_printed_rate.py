"""A printed learning rate that is not the config's."""

from pathlib import Path

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

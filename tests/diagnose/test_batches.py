"""Tokens that were seen and speeds, where a run was resumed with another batch."""

from pathlib import Path

import pytest

from gptwright.diagnose.engine import diagnose
from gptwright.diagnose.judging import Diagnosis
from gptwright.diagnose.reading import read_run
from gptwright.record.open_run import open_run


def part(first: int, last: int, ms: float, mfu: float = 30.0) -> list[str]:
    return [
        f"iter {step}: loss {10 / (1 + step / 300) + 3:.4f}, time {ms:.2f}ms, mfu {mfu:.2f}%"
        for step in range(first, last + 1, 10)
    ]


def read(folder: Path, lines: list[str]) -> Diagnosis:
    (folder / "log.txt").write_text("\n".join(lines) + "\n")
    return diagnose(read_run(open_run(str(folder))))


def header(tokens: int, *, resumed: bool = False) -> list[str]:
    started = "Resuming training from out" if resumed else "Initializing a new model from scratch"
    return [f"tokens per iteration will be: {tokens:,}", started, "number of parameters: 123.59M"]


def test_tokens_are_counted_piece_by_piece(tmp_path: Path) -> None:
    lines = header(491_520) + part(0, 1000, 2000) + header(245_760, resumed=True) + part(1000, 3000, 1000)
    diagnosis = read(tmp_path, lines)
    progress, speed = diagnosis.reading.progress, diagnosis.reading.speed
    assert progress.tokens_seen is not None
    assert progress.tokens_seen.value == 1000 * 491_520 + 2000 * 245_760
    assert progress.tokens_seen.reason == "1,000 steps × 491,520 tokens + 2,000 steps × 245,760 tokens"
    assert speed.tokens_per_second is not None
    assert speed.tokens_per_second.number == pytest.approx(245_760)
    change = next(finding for finding in diagnosis.findings if finding.id == "batch-change")
    assert [fact.source for fact in change.evidence[:2]] == ["log:1", "log:105"]


def test_an_older_checkpoint_leaves_behind_what_followed_it(tmp_path: Path) -> None:
    lines = header(491_520) + part(0, 1000, 2000) + header(245_760, resumed=True) + part(500, 1500, 1000)
    seen = read(tmp_path, lines).reading.progress.tokens_seen
    assert seen is not None
    assert seen.value == 500 * 491_520 + 1000 * 245_760


def test_the_same_batch_again_is_no_change(tmp_path: Path) -> None:
    lines = header(491_520) + part(0, 1000, 2000) + header(491_520, resumed=True) + part(1000, 2000, 2000)
    diagnosis = read(tmp_path, lines)
    assert diagnosis.reading.progress.tokens_seen is not None
    assert diagnosis.reading.progress.tokens_seen.value == 2000 * 491_520
    assert "batch-change" not in {finding.id for finding in diagnosis.findings}


def test_factors_tell_where_the_product_is_not_printed(tmp_path: Path) -> None:
    def start(steps: int) -> str:
        return f"breaks down as: {steps} grad accum steps * 1 processes * 128 batch size * 256 max seq len"

    def rows(first: int, last: int, ms: float) -> list[str]:
        return [
            f"{step} | loss {3 + 300 / (step + 100):.4f} | lr 5.000000e-04 | {ms:.2f}ms | mfu 40.00%"
            for step in range(first, last + 1, 10)
        ]

    lines = [start(4), *rows(0, 1000, 160), "Resuming training from out", start(8), *rows(1000, 2000, 320)]
    seen = read(tmp_path, lines).reading.progress.tokens_seen
    assert seen is not None
    assert seen.value == 1000 * 131_072 + 1000 * 262_144


def test_where_only_the_work_of_a_step_changed_the_tokens_are_not_known(tmp_path: Path) -> None:
    (tmp_path / "config.py").write_text(
        "batch_size = 12\nblock_size = 1024\ngradient_accumulation_steps = 20\nn_layer = 12\nn_embd = 768\n"
    )
    lines = [*part(0, 1000, 2000), "Resuming training from out", *part(1000, 2000, 1000)]
    diagnosis = read(tmp_path, lines)
    assert diagnosis.reading.progress.tokens_seen is None
    asked = {unknown.question: unknown.missing for unknown in diagnosis.unknown}
    assert "2 times the work of the last ones" in asked["How many tokens were seen?"]


def test_a_header_that_says_the_same_leaves_nothing_open(tmp_path: Path) -> None:
    """Two devices in place of one: half the work on each, and as many tokens."""
    lines = header(491_520) + part(0, 1000, 3140) + header(491_520, resumed=True) + part(1000, 2000, 1570)
    diagnosis = read(tmp_path, lines)
    progress, seconds = diagnosis.reading.progress, diagnosis.reading.speed.step_seconds
    assert progress.tokens_seen is not None
    assert progress.tokens_seen.value == 2000 * 491_520
    assert seconds is not None
    assert seconds.number == pytest.approx(1.57)


def test_a_slower_machine_since_a_resume(tmp_path: Path) -> None:
    lines = (
        header(491_520) + part(0, 1000, 3140) + header(491_520, resumed=True) + part(1000, 2000, 6280, 15.0)
    )
    diagnosis = read(tmp_path, lines)
    assert diagnosis.reading.speed.step_seconds is not None
    assert diagnosis.reading.speed.step_seconds.number == pytest.approx(6.28)
    slower = next(finding for finding in diagnosis.findings if finding.id == "slower-steps")
    assert "3.1 s before the run was resumed and takes 6.3 s since" in slower.message
    assert "another machine" in slower.causes[0].text

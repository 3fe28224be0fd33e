"""A log whose newest line stands first says the same as in its own order."""

import math
from pathlib import Path

import pytest

from gptwright.diagnose.engine import diagnose
from gptwright.diagnose.judging import Diagnosis
from gptwright.diagnose.reading import read_run
from gptwright.record.open_run import open_run


def loss(step: int) -> float:
    return float(3.2 + 7.7 * (1 + step / 200) ** -0.7)


def nanogpt() -> list[str]:
    lines = ["number of parameters: 123.59M"]
    for step in range(0, 2001, 20):
        if step % 200 == 0:
            lines.append(f"step {step}: train loss {loss(step):.4f}, val loss {loss(step) + 0.01:.4f}")
        lines.append(f"iter {step}: loss {loss(step):.4f}, time 200.00ms, mfu 11.00%")
    return lines


def plain() -> list[str]:
    return [
        f"2026-01-01 10:{step // 30 % 60:02d}:{step * 2 % 60:02d} step {step} loss {loss(step):.4f}"
        for step in range(0, 1500, 25)
    ]


def build_nanogpt() -> list[str]:
    """Validations say no step of their own: it is that of the line behind."""
    lines = ["total desired batch size: 524288"]
    for step in range(1001):
        if step % 250 == 0:
            lines.append(f"validation loss: {loss(step) + 0.01:.4f}")
        lines.append(
            f"step {step:5d} | loss: {loss(step):.6f} | lr 2.1004e-04 | norm: 0.9876 | dt: 5012.34ms"
            " | tok/sec: 104599.13"
        )
    return lines


def llmc() -> list[str]:
    """Steps count from 1, and a validation is of the line before."""
    lines = [f"val loss {loss(0):.6f}"]
    for step in range(1, 1001):
        lines.append(
            f"step {step:4d}/1000 | loss {loss(step):.6f} (+0.12z)| norm 1.2345 (-0.31z)| lr 3.00e-04"
            " | 251.30 ms | 45.6% bf16 MFU | 260786 tok/s"
        )
        if step % 250 == 0:
            lines.append(f"val loss {loss(step):.6f}")
    return lines


def litgpt() -> list[str]:
    lines = ["Total parameters: 162,322,944"]
    for step in range(5, 1000, 5):
        lines.append(
            f"Epoch 1 | iter {4 * step} step {step} | loss train: {loss(step):.3f}, val: n/a"
            " | iter time: 32.65 ms (step) remaining time: 0:00:00"
        )
        if step % 200 == 0:
            lines.append(f"iter {4 * step}: val loss {loss(step):.4f}, val time: 1341.32 ms")
    # The last evaluation by its turn lies behind the last line of training, and the final one with it.
    return [
        *lines,
        "iter 4000: val loss 3.3293, val time: 1341.32 ms",
        "Final evaluation | val loss: 3.329 | val ppl: 27.9",
    ]


def read(folder: Path, lines: list[str]) -> Diagnosis:
    folder.mkdir()
    (folder / "log.txt").write_text("\n".join(lines) + "\n")
    return diagnose(read_run(open_run(str(folder))))


@pytest.mark.parametrize("lines", [nanogpt(), plain()], ids=["nanogpt", "plain"])
def test_it_says_what_it_says_in_its_own_order(tmp_path: Path, lines: list[str]) -> None:
    own, turned = read(tmp_path / "own", lines), read(tmp_path / "turned", lines[::-1])
    for name in ("first_step", "last_step"):
        ours, theirs = (getattr(each.reading.progress, name) for each in (own, turned))
        assert ours.value == theirs.value
        line = int(theirs.source.removeprefix("log:"))
        assert str(theirs.value) in lines[::-1][line - 1]
    assert own.reading.speed.step_seconds is not None
    assert turned.reading.speed.step_seconds is not None
    assert turned.reading.speed.step_seconds.value == pytest.approx(own.reading.speed.step_seconds.value)
    assert own.reading.train is not None
    assert turned.reading.train is not None
    assert list(turned.reading.train.loss) == list(own.reading.train.loss)
    assert {f.id for f in turned.findings} == {f.id for f in own.findings} | {"newest-first"}


def test_the_beginning_of_a_fault_is_found_from_the_end(tmp_path: Path) -> None:
    lines = [
        f"iter {step}: loss {loss(step) if step < 1000 else math.nan:.4f}, time 200.00ms, mfu 11.00%"
        for step in range(0, 2001, 20)
    ]
    diagnosis = read(tmp_path / "turned", lines[::-1])
    message = next(f.message for f in diagnosis.findings if f.id == "non-finite-loss")
    assert "from step 1,000 on (line 51)" in message
    assert f"The last number is {loss(980):.4f} at step 980." in message


def test_runs_that_start_again_are_no_such_log(tmp_path: Path) -> None:
    lines = [*nanogpt()[1:40], *nanogpt()[1:30]]
    found = {finding.id for finding in read(tmp_path / "two", lines).findings}
    assert "several-runs" in found
    assert "newest-first" not in found


def test_the_batch_is_that_of_the_newest_process(tmp_path: Path) -> None:
    def part(tokens: int, first: int, ms: float) -> list[str]:
        lines = [
            f"iter {step}: loss {loss(step):.4f}, time {ms:.2f}ms" for step in range(first, first + 1001, 20)
        ]
        return [f"tokens per iteration will be: {tokens:,}", "Resuming training from out", *lines]

    lines = part(491_520, 0, 3000) + part(245_760, 1000, 1500)
    run = read(tmp_path / "turned", lines[::-1]).reading
    assert run.speed.tokens_per_step is not None
    assert run.speed.tokens_per_step.value == 245_760
    assert run.progress.tokens_seen is not None
    assert run.progress.tokens_seen.value == 1000 * 491_520 + 1000 * 245_760


@pytest.mark.parametrize(
    "lines", [build_nanogpt(), llmc(), litgpt()], ids=["build-nanogpt", "llm.c", "litgpt"]
)
def test_evaluations_without_a_step_belong_to_the_same_lines(tmp_path: Path, lines: list[str]) -> None:
    own, turned = (read(tmp_path / name, each) for name, each in (("own", lines), ("turned", lines[::-1])))
    assert {"newest-first"} == {f.id for f in turned.findings} - {f.id for f in own.findings}
    assert "several-runs" not in {f.id for f in turned.findings}
    assert own.reading.evals is not None
    assert turned.reading.evals is not None
    assert list(turned.reading.evals.step) == list(own.reading.evals.step)
    assert list(turned.reading.evals.val_loss) == list(own.reading.evals.val_loss)
    assert own.reading.evals.step[-1] == 1000
    assert not own.reading.evals.segment.any()

"""The training screen: lines where nothing can be repainted, a calm panel where it can, at every width."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from gptwright.record.metrics import Record
from gptwright.record.progress import RunProgress
from gptwright.report import aside
from gptwright.report.aside import DiagnosisAside
from gptwright.report.sparkline import ASCII_BARS, BARS, sparkline
from gptwright.report.training_screen import (
    LiveScreen,
    NarrowingLive,
    Panel,
    PlainScreen,
    TrainingScreen,
    training_screen,
)

TRAIN: Record = {
    "kind": "train", "time": 5.0, "step": 9, "loss": 2.5, "loss_mean": 2.6, "seconds": 0.05,
    "tokens_per_second": 15360.0, "mfu": 0.493, "lr": 1e-3, "grad_norm": 0.81,
}  # fmt: skip
EVAL: Record = {
    "kind": "eval", "time": 4.0, "step": 10, "train_loss": 2.4, "val_loss": 2.45, "val_windows": 240,
    "train_loss_standard_error": 0.01, "val_loss_standard_error": 0.0123, "seconds": 1.0,
}  # fmt: skip
FINDING = {
    "severity": "warning", "id": "loss-spike",
    "message": "The loss rose from 2.4 to 5.2 at step 210 and came back within 40 steps, as it does when one"
    " batch is unlike the others.",
}  # fmt: skip


def console_of(*, terminal: bool, width: int = 100) -> tuple[Console, io.StringIO]:
    text = io.StringIO()
    return Console(file=text, force_terminal=terminal, width=width, highlight=False, color_system=None), text


def screen(console: Console, *, plain: bool = False) -> TrainingScreen:
    return training_screen(console, plain=plain, progress=RunProgress(max_iters=20, eval_interval=10))


@pytest.fixture(autouse=True)
def _no_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CI", "TERM", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)


def test_a_pipe_gets_nanogpts_lines() -> None:
    pipe, text = console_of(terminal=False)
    with screen(pipe) as shown:
        assert isinstance(shown, PlainScreen)
        shown.recorded(EVAL)
        shown.recorded(TRAIN)
        shown.stepped(9)
    assert text.getvalue() == (
        "step 10: train loss 2.4000, val loss 2.4500 (standard errors 0.0100, 0.0123)\n"
        "iter 9: loss 2.5000, time 50.00ms, mfu 49.30%\n"
    )


@pytest.mark.parametrize(("name", "value"), [("CI", "true"), ("TERM", "dumb"), ("", "")])
def test_what_cannot_repaint_gets_lines_on_a_terminal_too(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name:
        monkeypatch.setenv(name, value)
    console, text = console_of(terminal=True)
    with screen(console, plain=not name) as shown:
        assert isinstance(shown, PlainScreen)
        shown.recorded(TRAIN)
    assert text.getvalue() == "iter 9: loss 2.5000, time 50.00ms, mfu 49.30%\n"


def test_a_notebook_gets_lines() -> None:
    console = Console(file=io.StringIO(), force_jupyter=True, width=100)
    assert isinstance(screen(console), PlainScreen)


def test_a_terminal_gets_the_panel_under_the_evaluations() -> None:
    console, text = console_of(terminal=True)
    with screen(console) as shown:
        assert isinstance(shown, LiveScreen)
        shown.recorded(EVAL | {"step": 0})
        shown.recorded(TRAIN)
        shown.stepped(9)
    painted = text.getvalue()
    assert "step 0: train loss 2.4000, val loss 2.4500 (standard errors 0.0100, 0.0123)" in painted
    assert "iter 9" not in painted
    last = painted[painted.rindex("step 10/20") :]
    # Ten steps of 50 ms and the evaluations at 10 and 20, of a second each; the one at 10 is still due.
    assert " 50.0 %, 1.5 s left" in last
    assert "loss 2.6000" in last
    assert "best val 2.4500 ± 0.0123 at 0" in last
    assert "15,360 tokens/s · MFU 49.3 % · 50.00 ms a step · learning rate 1.00e-03 · gradient 0.81" in last


def test_a_loss_that_is_no_number_does_not_break_the_screens() -> None:
    for terminal in (True, False):
        console, text = console_of(terminal=terminal)
        with screen(console) as shown:
            shown.recorded(TRAIN | {"loss": "nan", "loss_mean": "nan", "grad_norm": "inf"})
        assert "loss nan" in text.getvalue()


def painted(width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, color_system=None, force_terminal=True)
    progress = RunProgress(max_iters=120_000, eval_interval=10)
    panel = Panel(progress)
    panel.findings = [FINDING, FINDING | {"severity": "good", "id": "near-peak"}]
    for step in range(300):
        progress.add(TRAIN | {"step": step, "loss_mean": 5 - step / 100})
    progress.add(EVAL)
    with console.capture() as capture:
        console.print(panel, no_wrap=True)
    return capture.get().splitlines()


@pytest.mark.parametrize("width", [20, 40, 80, 120, 300])
def test_no_line_is_wider_than_the_terminal_or_a_hundred(width: int) -> None:
    lines = painted(width)
    assert len(lines) == 5
    assert all(len(line) <= min(width, 100) for line in lines)
    if width >= 80:
        assert len(lines[0]) == min(width, 100)
        assert BARS[-1] in lines[1]
        assert lines[3].startswith("warning loss-spike The loss rose")
        assert lines[3].endswith("…")


def test_a_terminal_narrower_than_the_last_painting_is_cleared_of_what_it_broke_in_two() -> None:
    console, text = console_of(terminal=True, width=90)
    panel = Panel(RunProgress(max_iters=20))
    panel.progress.add(TRAIN)
    live = NarrowingLive(panel, console)
    live.auto_refresh = False
    with live:
        live.refresh()
        before = len(text.getvalue())
        live.refresh()
        same = text.getvalue()[before:].count("\x1b[1A")
        # At 30 columns the terminal shows the line of 90 as three, and two of 46 to 90 as two or three.
        rows = sum(-(-cells // 30) for cells in panel.cells)
        console.width = 30
        before = len(text.getvalue())
        live.refresh()
        narrowed = text.getvalue()[before:].count("\x1b[1A")
    assert same == 2
    assert narrowed == rows - 1


def test_without_unicode_the_panel_is_ascii() -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="replace")
    console = Console(file=stream, width=80, color_system=None, force_terminal=True)
    progress = RunProgress(max_iters=100)
    for step in range(50):
        progress.add(TRAIN | {"step": step, "loss_mean": 5 - step / 100})
    console.print(Panel(progress))
    stream.flush()
    assert isinstance(stream.buffer, io.BytesIO)
    lines = stream.buffer.getvalue().decode("ascii").splitlines()
    assert "=====" in lines[0]
    assert ASCII_BARS[-1] in lines[1]


def test_a_sparkline_shows_the_shape_and_not_only_the_first_fall() -> None:
    assert sparkline([], 10) == ""
    assert sparkline([1.0, 2.0, 3.0, 3.0], 10) == "▁▅██"
    assert sparkline([1.0] * 50, 8) == "▁" * 8
    falling = [10.0] + [3 - step / 100 for step in range(200)]
    line = sparkline(falling, 40)
    assert len(line) == 40
    assert len(set(line)) >= 6
    assert list(line) == sorted(line, reverse=True)


def test_findings_are_made_beside_the_run_by_the_command_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [{"v": 1, "kind": "start", "time": 1.0, "step": 0, "vocab_size": 65, "max_iters": 400}]
    lines += [TRAIN | {"v": 1, "step": step, "loss": 9.0, "loss_mean": 9.0} for step in range(300)]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    monkeypatch.setattr(aside, "FIRST_AFTER", 0.0)
    beside = DiagnosisAside(tmp_path)
    try:
        beside.look()
        assert beside._process is not None
        assert beside._process.wait(timeout=60) == 0
        beside.look()
        assert beside.document is not None
        assert beside.document["schema"] == "gptwright.diagnosis/1"
        assert "init-loss" in {finding["id"] for finding in beside.document["findings"]}
        # The next one waits a hundred times as long as this one took.
        beside.look()
        assert beside._process is None
    finally:
        beside.close()

"""What a person sees: lines in a pipe, a bar on a terminal, and no markup obeyed that a name holds."""

import io

import pytest
from rich.console import Console

from gptwright.errors import ConfigError
from gptwright.facts import Fact, Origin
from gptwright.record.metrics import Record
from gptwright.report.terminal import (
    PlainScreen,
    ProgressScreen,
    show_error,
    show_startup,
    show_summary,
    training_screen,
)

TRAIN: Record = {
    "kind": "train", "step": 9, "loss": 2.5, "loss_mean": 2.6, "seconds": 0.05,
    "tokens_per_second": 15360.0, "mfu": 0.493,
}  # fmt: skip
EVAL: Record = {
    "kind": "eval", "step": 10, "train_loss": 2.4, "val_loss": 2.45, "val_windows": 240,
    "train_loss_standard_error": 0.01, "val_loss_standard_error": 0.0123,
}  # fmt: skip


def screen_of(*, terminal: bool) -> tuple[Console, io.StringIO]:
    text = io.StringIO()
    return Console(file=text, force_terminal=terminal, width=100, highlight=False, color_system=None), text


def test_a_pipe_gets_nanogpts_lines_and_a_terminal_a_bar() -> None:
    pipe, text = screen_of(terminal=False)
    with training_screen(pipe, plain=False, max_iters=20, first_step=0) as screen:
        assert isinstance(screen, PlainScreen)
        screen.recorded(EVAL)
        screen.recorded(TRAIN)
        screen.stepped(9)
    assert text.getvalue() == (
        "step 10: train loss 2.4000, val loss 2.4500 (standard errors 0.0100, 0.0123)\n"
        "iter 9: loss 2.5000, time 50.00ms, mfu 49.30%\n"
    )
    terminal, text = screen_of(terminal=True)
    with training_screen(terminal, plain=False, max_iters=20, first_step=0) as screen:
        assert isinstance(screen, ProgressScreen)
        screen.recorded(EVAL)
        screen.recorded(TRAIN)
        screen.stepped(9)
    shown = text.getvalue()
    assert "step 10: train loss 2.4000" in shown
    assert "step 10/20" in shown
    assert "loss 2.6000 · 15,360 tok/s · MFU 49.3 %" in shown
    assert "iter 9" not in shown
    assert isinstance(training_screen(terminal, plain=True, max_iters=1, first_step=0), PlainScreen)


def test_a_loss_that_is_no_number_does_not_break_the_screens() -> None:
    for terminal in (True, False):
        console, text = screen_of(terminal=terminal)
        with training_screen(console, plain=False, max_iters=20, first_step=0) as screen:
            screen.recorded(TRAIN | {"loss": "nan", "loss_mean": "nan"})
        assert "loss nan" in text.getvalue()


def test_markup_in_names_is_shown_and_not_obeyed(capsys: pytest.CaptureFixture[str]) -> None:
    console, text = screen_of(terminal=False)
    fact = Fact(name="out_dir", value="[red]x", text="[red]x", origin=Origin.CONFIGURED, reason="[link=a]b")
    show_startup(console, [fact], ["[bold]careful"])
    assert "[red]x" in text.getvalue()
    assert "[link=a]b" in text.getvalue()
    assert "[bold]careful" in text.getvalue()
    show_error(ConfigError("bad [red]thing[/red]", fix="type [/]"))
    assert "error: bad [red]thing[/red]\n  fix: type [/]" in capsys.readouterr().err


def test_the_summary_has_last_and_best_with_errors_and_medians() -> None:
    console, text = screen_of(terminal=False)
    best = EVAL | {"step": 5, "val_loss": 2.1}
    slow = TRAIN | {"seconds": 9.0, "tokens_per_second": 85.0}
    show_summary(console, [best, TRAIN, TRAIN, slow, EVAL], folder="a/" + "long/" * 40 + "[run]")
    lines = text.getvalue().splitlines()
    assert lines[1] == "validation loss 2.4500 ± 0.0123 (standard error, 240 windows) at step 10"
    assert lines[2] == "best 2.1000 ± 0.0123 (standard error, 240 windows) at step 5"
    assert lines[3] == "speed 50.00 ms a step, 15,360 tokens/s, MFU 49.3 % of the measured peak (medians)"
    assert lines[4] == "run folder a/" + "long/" * 40 + "[run]"

"""A run on the screen: lines in a pipe, a bar on a terminal."""

from gptwright.report.training import PlainScreen, ProgressScreen, training_screen
from tests.report.records import EVAL, TRAIN, screen_of


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

"""What a person sees: errors, the start-up table, the summary, and no markup obeyed that a name holds."""

import pytest

from gptwright.errors import ConfigError
from gptwright.facts import Fact, Origin
from gptwright.report.terminal import show_error, show_startup, show_summary
from tests.report.records import EVAL, TRAIN, screen_of


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

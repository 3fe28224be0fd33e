"""Lines of metrics and a screen to show them on."""

import io

from rich.console import Console

from gptwright.record.metrics import Record

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

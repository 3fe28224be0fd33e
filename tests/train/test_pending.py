"""What a line of the record says of its steps, also where a checkpoint fell between two lines."""

import math

import pytest
import torch

from gptwright.train.pending import PendingLosses
from gptwright.train.state import TrainState

CPU = torch.device("cpu")


def test_a_line_has_the_last_loss_the_mean_and_the_time_of_a_step() -> None:
    pending = PendingLosses(CPU, TrainState())
    for loss in (4.0, math.nan, 2.0):
        pending.add(torch.tensor(loss), 0.5)
    line = pending.take()
    assert (line.last, line.mean, line.step_seconds) == (2.0, 3.0, 0.5)
    pending.add(torch.tensor(math.inf), 0.25)
    line = pending.take()
    assert (line.last, line.step_seconds) == (math.inf, 0.25)
    assert math.isnan(line.mean)


def test_a_resumed_run_writes_the_line_of_an_undisturbed_one() -> None:
    whole, before, state = PendingLosses(CPU, TrainState()), PendingLosses(CPU, TrainState()), TrainState()
    for loss in (3.0, math.nan):
        for pending in (whole, before):
            pending.add(torch.tensor(loss), 1.0)
    before.keep(state)
    assert state.pending_losses == [3.0, None]
    after = PendingLosses(CPU, state)
    for pending in (whole, after):
        pending.add(torch.tensor(1.0), 4.0)
    assert after.take() == whole.take()


@pytest.mark.parametrize(
    ("before", "loss", "best"),
    [(None, 3.0, True), (3.0, 2.9, True), (3.0, 3.0, False), (0.0, 0.5, False), (None, math.nan, False)],
)
def test_the_best_loss_is_the_lowest_number(before: float | None, loss: float, best: bool) -> None:
    """A loss of 0 is a number too: text of one token has it."""
    assert TrainState(best_val_loss=before).is_best(loss) is best

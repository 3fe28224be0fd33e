"""What a line of the record says of its steps, also where a checkpoint fell between two lines."""

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from gptwright.record.metrics import read_metrics
from gptwright.train import pending as pending_losses
from gptwright.train.evaluate import Evaluator
from gptwright.train.guards import UpdateGuard
from gptwright.train.pending import PendingLosses
from gptwright.train.state import TrainState
from tests.train.conftest import Train

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


def test_what_an_evaluation_or_a_checkpoint_waits_for_is_the_steps_time(
    tmp_path: Path, tiny: dict[str, str], train: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a device that works beside the host and takes 0.2 s a step, for which who reads a number waits."""
    given: list[float] = []

    def wait(*_: object) -> None:
        time.sleep(sum(given))
        given.clear()

    def before(owner: type, name: str, action: Callable[..., None]) -> None:
        real = getattr(owner, name)

        def done(*arguments: Any) -> Any:
            action()
            return real(*arguments)

        monkeypatch.setattr(owner, name, done)

    monkeypatch.setattr(pending_losses, "synchronize", wait)
    before(PendingLosses, "add", lambda: given.append(0.2))
    before(Evaluator, "evaluate", wait)
    before(UpdateGuard, "settle", wait)
    options = {"max_iters": "9", "log_interval": "4", "eval_interval": "3", "checkpoint_interval": "2"}
    train(tiny | options, tmp_path / "run")
    lines = [r for r in read_metrics(tmp_path / "run" / "metrics.jsonl") if r["kind"] == "train"]
    assert [line["step"] for line in lines] == [0, 4, 8]
    assert all(line["seconds"] >= 0.2 for line in lines)

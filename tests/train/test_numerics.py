"""A device that computes other numbers than a CPU is found before it trains."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from gptwright.config.load import load_config
from gptwright.errors import RunFailedError
from gptwright.record.metrics import read_metrics
from gptwright.train import fitting
from gptwright.train.numerics import wrong_numbers
from gptwright.train.precision import Precision
from gptwright.train.run import prepare_new, train_prepared
from gptwright.train.session import Session, build_session
from tests.train.conftest import Watcher


@pytest.fixture
def session(tiny: dict[str, str]) -> Session:
    return build_session(load_config([], tiny | {"dropout": "0.2"}))


def spoilt(session: Session, spoil: Callable[[Tensor], Tensor]) -> Session:
    """With a forward pass whose losses are other ones where there are more than two rows."""

    def forward(tokens_BT: Tensor, targets_BT: Tensor, *, per_window: bool = False) -> Tensor:
        loss: Tensor = session.model(tokens_BT, targets_BT, per_window=per_window)
        return spoil(loss) if len(tokens_BT) > 2 else loss

    return replace(session, replica=replace(session.replica, forward=forward))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_right_numbers_are_no_trouble_and_leave_no_trace(session: Session, dtype: str) -> None:
    precision = Precision(session.precision.device, dtype)
    tried = replace(session, precision=precision, scaler=precision.scaler())
    before = torch.get_rng_state(), [p.detach().clone() for p in session.model.parameters()]
    assert wrong_numbers(tried, session.config) is None
    assert torch.equal(before[0], torch.get_rng_state())
    for was, parameter in zip(before[1], session.model.parameters(), strict=True):
        assert torch.equal(was, parameter)
        assert parameter.grad is None
    assert session.model.training


@pytest.mark.parametrize("settings", [{"loss_chunk": "16"}, {"arch": "modern", "tie_weights": "False"}])
def test_every_model_can_be_asked(tiny: dict[str, str], settings: dict[str, str]) -> None:
    asked = build_session(load_config([], tiny | settings))
    assert wrong_numbers(asked, asked.config) is None


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda loss: loss * 1.01, "computes a loss of "),
        (lambda loss: loss * torch.nan, "computes a loss of nan, where the CPU computes "),
        (lambda loss: loss + 0.1 * (loss - loss.detach()), "a gradient that is 0.1 of its own length from"),
    ],
)
def test_wrong_numbers_are_told_with_the_size_at_which_they_are(
    session: Session, spoil: Callable[[Tensor], Tensor], said: str
) -> None:
    wrong = wrong_numbers(spoilt(session, spoil), session.config)
    assert wrong is not None
    assert wrong.startswith(f"with a micro-batch of 4 {session.precision.device.name} computes")
    assert said in wrong
    assert wrong_numbers(spoilt(session, spoil), replace(session.config, batch_size=2)) is None


def test_a_run_with_wrong_numbers_does_not_begin(
    tmp_path: Path, tiny: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = prepare_new(load_config([], tiny | {"out_dir": str(tmp_path / "run")}))
    mps = replace(prepared.session.precision.device, type="mps")
    monkeypatch.setattr(type(mps), "torch_device", torch.device("cpu"))
    session = replace(prepared.session, precision=Precision(mps, "float32"))
    monkeypatch.setattr(torch.mps, "synchronize", lambda: None)
    monkeypatch.setattr(torch.mps, "empty_cache", lambda: None)
    monkeypatch.setattr(fitting, "wrong_numbers", lambda *_: "another loss")
    with pytest.raises(RunFailedError, match=r"another loss[\s\S]*--device=cpu"):
        train_prepared(replace(prepared, session=session), Watcher())
    last = read_metrics(tmp_path / "run" / "metrics.jsonl")[-1]
    assert (last["kind"], last["state"], last["reason"]) == ("end", "failed", "another loss")

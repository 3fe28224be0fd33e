"""Clipping is torch's to the bit, and leaves alone what is short enough."""

import math

import pytest
import torch
from torch import nn

from gptwright.train.update import clip_gradients


def with_gradients() -> nn.Linear:
    model = nn.Linear(8, 5)
    generator = torch.Generator().manual_seed(1)
    for parameter in model.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=generator)
    return model


def gradients(model: nn.Module) -> list[torch.Tensor]:
    return [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]


@pytest.mark.parametrize("share", [0.5, 0.999999, 1.0, 1.000001, 2.0])
def test_it_is_torchs(share: float) -> None:
    ours, theirs = with_gradients(), with_gradients()
    norm = float(nn.utils.get_total_norm(gradients(ours)))
    expected = nn.utils.clip_grad_norm_(theirs.parameters(), share * norm)
    found = clip_gradients(ours, share * norm)
    assert torch.equal(found, expected)
    for one, other in zip(gradients(ours), gradients(theirs), strict=True):
        assert torch.equal(one, other)


def test_what_is_short_enough_is_not_touched() -> None:
    model = with_gradients()
    versions = [p.grad._version for p in model.parameters() if p.grad is not None]
    clip_gradients(model, 1000.0)
    assert [p.grad._version for p in model.parameters() if p.grad is not None] == versions
    clip_gradients(model, 0.001)
    assert [p.grad._version for p in model.parameters() if p.grad is not None] == [v + 1 for v in versions]


def test_zero_only_measures() -> None:
    model = with_gradients()
    before = gradients(model)
    assert float(clip_gradients(model, 0.0)) == pytest.approx(
        math.sqrt(sum(float((g**2).sum()) for g in before))
    )
    for one, other in zip(gradients(model), before, strict=True):
        assert torch.equal(one, other)

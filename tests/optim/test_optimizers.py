"""Which parameters decay, and one AdamW update against its paper."""

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import nn

from gptwright.arithmetic.shape import ModelShape
from gptwright.config.schema import TrainConfig
from gptwright.model.gpt import GPT
from gptwright.optim.optimizers import build_optimizer, set_learning_rate

CONFIG = TrainConfig(learning_rate=3e-2, weight_decay=0.2, beta1=0.8, beta2=0.9)


def names_in_groups(*, tie_weights: bool) -> list[list[str]]:
    shape = ModelShape(
        n_layer=1,
        n_head=2,
        n_embd=8,
        block_size=4,
        vocab_size=11,
        bias=True,
        tie_weights=tie_weights,
        dropout=0.0,
    )
    model = GPT(shape)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    groups = build_optimizer(model, CONFIG, fused=True).param_groups
    assert [group["weight_decay"] for group in groups] == [0.2, 0.0]
    return [[names[id(parameter)] for parameter in group["params"]] for group in groups]


def test_matrices_and_tables_decay_vectors_do_not() -> None:
    decayed, others = names_in_groups(tie_weights=True)
    assert decayed == [
        "transformer.wte.weight",
        "transformer.wpe.weight",
        "transformer.h.0.attn.c_attn.weight",
        "transformer.h.0.attn.c_proj.weight",
        "transformer.h.0.mlp.c_fc.weight",
        "transformer.h.0.mlp.c_proj.weight",
    ]
    assert others == [
        "transformer.h.0.ln_1.weight",
        "transformer.h.0.ln_1.bias",
        "transformer.h.0.attn.c_attn.bias",
        "transformer.h.0.attn.c_proj.bias",
        "transformer.h.0.ln_2.weight",
        "transformer.h.0.ln_2.bias",
        "transformer.h.0.mlp.c_fc.bias",
        "transformer.h.0.mlp.c_proj.bias",
        "transformer.ln_f.weight",
        "transformer.ln_f.bias",
    ]


def test_an_untied_head_decays_too() -> None:
    decayed, _ = names_in_groups(tie_weights=False)
    assert decayed[-1] == "lm_head.weight"


def adamw(
    weights: npt.NDArray[np.float64],
    gradients: list[npt.NDArray[np.float64]],
    *,
    learning_rates: list[float],
    weight_decay: float,
) -> npt.NDArray[np.float64]:
    """Loshchilov and Hutter 2019, algorithm 2, with its schedule factor times alpha as the learning rate."""
    mean, square = np.zeros_like(weights), np.zeros_like(weights)
    for number, (gradient, rate) in enumerate(zip(gradients, learning_rates, strict=True), start=1):
        mean = 0.8 * mean + 0.2 * gradient
        square = 0.9 * square + 0.1 * gradient**2
        direction = (mean / (1 - 0.8**number)) / (np.sqrt(square / (1 - 0.9**number)) + 1e-8)
        weights = weights - rate * (direction + weight_decay * weights)
    return weights


@pytest.mark.parametrize("fused", [True, False])
def test_updates_are_adamws_and_take_the_learning_rate_set(*, fused: bool) -> None:
    torch.manual_seed(0)
    model = nn.Linear(5, 3).double()
    start = {name: parameter.detach().numpy().copy() for name, parameter in model.named_parameters()}
    optimizer = build_optimizer(model, CONFIG, fused=fused)
    gradients: dict[str, list[npt.NDArray[np.float64]]] = {"weight": [], "bias": []}
    rates = [3e-2, 1e-2, 5e-2]
    for number, rate in enumerate(rates):
        if number:  # the first update uses the config's own
            set_learning_rate(optimizer, rate)
        for name, parameter in model.named_parameters():
            parameter.grad = torch.randn(parameter.shape, dtype=torch.float64)
            gradients[name].append(parameter.grad.numpy().copy())
        optimizer.step()
    for name, decay in (("weight", 0.2), ("bias", 0.0)):
        wanted = adamw(start[name], gradients[name], learning_rates=rates, weight_decay=decay)
        np.testing.assert_allclose(model.get_parameter(name).detach().numpy(), wanted, rtol=1e-10)

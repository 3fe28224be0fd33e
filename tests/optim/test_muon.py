"""Muon's direction against the singular value decomposition, and its update against its formula."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from gptwright.arithmetic.flops import muon_flops
from gptwright.config.schema import TrainConfig
from gptwright.model.gpt import GPT
from gptwright.optim.muon import orthogonalized, orthogonalized_each, update_scale
from gptwright.optim.optimizers import Optimizer, build_optimizer, set_learning_rate, set_momentum
from gptwright.optim.schedule import muon_momentum
from tests.model.models import shape_of
from tests.train.test_operations import WAITS, counted


def random_matrices(*shapes: tuple[int, ...]) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    return [torch.randn(shape, generator=generator) for shape in shapes]


@pytest.mark.parametrize("shape", [(4, 32, 32), (2, 16, 64), (2, 64, 16)])
@pytest.mark.parametrize(("steps", "low", "high"), [(5, 0.85, 1.15), (3, 0.1, 2.1)])
def test_singular_values_end_near_one(shape: tuple[int, ...], steps: int, low: float, high: float) -> None:
    (matrices,) = random_matrices(shape)
    result = orthogonalized(matrices, steps=steps)
    before, after = torch.linalg.svd(matrices), torch.linalg.svdvals(result)
    large = before.S / before.S.amax(dim=-1, keepdim=True) > 0.02
    assert low < after[large].min()
    assert after.max() < high
    # the directions are those of the matrix itself: U·Vᵀ up to the singular values
    rank = min(shape[-2:])
    turned = before.U[..., :rank].mT @ result @ before.Vh[..., :rank, :].mT
    off_diagonal = turned - torch.diag_embed(torch.diagonal(turned, dim1=-2, dim2=-1))
    assert off_diagonal.abs().max() < 1e-3


def test_a_scale_changes_nothing_and_zeros_stay() -> None:
    (matrix,) = random_matrices((1, 8, 24))
    torch.testing.assert_close(orthogonalized(1e-6 * matrix), orthogonalized(matrix), atol=1e-3, rtol=0)
    assert not orthogonalized(torch.zeros(2, 4, 4)).any()


def test_batched_by_shape_is_each_by_itself_in_order() -> None:
    matrices = random_matrices((8, 8), (8, 32), (32, 8), (8, 8), (4, 32))
    for matrix, result in zip(matrices, orthogonalized_each(matrices), strict=True):
        assert result.shape == matrix.shape
        torch.testing.assert_close(result, orthogonalized(matrix[None])[0], atol=1e-5, rtol=1e-5)


def test_bfloat16_gives_nearly_the_same_direction() -> None:
    (matrix,) = random_matrices((1, 32, 64))
    low, full = orthogonalized(matrix, dtype=torch.bfloat16), orthogonalized(matrix)
    cosine = (low * full).sum() / (low.norm() * full.norm())
    assert low.dtype == torch.float32
    assert cosine > 0.99


CONFIG = TrainConfig(
    optimizer="muon",
    learning_rate=1e-2,
    muon_learning_rate=0.05,
    muon_momentum=0.9,
    muon_warmup_iters=10,
    weight_decay=0.1,
)


def with_gradients(model: GPT) -> Optimizer:
    optimizer = build_optimizer(model, CONFIG, fused=True)
    generator = torch.Generator().manual_seed(1)
    for parameter in model.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=generator)
    return optimizer


def test_the_blocks_matrices_are_muons_and_nothing_else_decays() -> None:
    model = GPT(shape_of())
    muon, others = build_optimizer(model, CONFIG, fused=True).param_groups
    names = {id(p): name for name, p in model.named_parameters()}
    assert muon["weight_decay"] == 0.1
    assert others["weight_decay"] == 0.0
    assert {names[id(p)].split(".", 3)[3] for p in muon["params"]} == {
        "attn.c_attn.weight",
        "attn.c_proj.weight",
        "mlp.c_fc.weight",
        "mlp.c_proj.weight",
    }
    assert len(muon["params"]) + len(others["params"]) == len(list(model.parameters()))


def test_an_update_is_nesterov_made_orthogonal() -> None:
    model = GPT(shape_of())
    optimizer = with_gradients(model)
    set_learning_rate(optimizer, 1e-2)
    set_momentum(optimizer, 0.8)
    weight = model.get_parameter("transformer.h.0.attn.c_attn.weight")
    assert weight.grad is not None
    before, gradient = weight.detach().clone(), weight.grad.clone()
    optimizer.step()
    direction = gradient * 0.2 + 0.8 * (0.2 * gradient)
    thirds = [orthogonalized(part[None])[0] for part in direction.chunk(3)]
    wanted = before * (1 - 0.05 * 0.1) - 0.05 * torch.cat(thirds)
    torch.testing.assert_close(weight.detach(), wanted, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(optimizer.state[weight]["momentum"], 0.2 * gradient)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_a_refused_update_changes_nothing_without_asking_the_host(bad: float) -> None:
    model = GPT(shape_of())
    optimizer = with_gradients(model)
    optimizer.step()
    for parameter in model.parameters():
        assert parameter.grad is not None
        parameter.grad[..., 0] = bad
    weights = [p.detach().clone() for p in model.parameters()]
    kept = {p: {name: m.clone() for name, m in state.items()} for p, state in optimizer.state.items()}
    seen = counted(lambda: optimizer.step(found_inf=torch.ones(())))
    assert not WAITS & seen.by_name.keys()
    for parameter, before in zip(model.parameters(), weights, strict=True):
        torch.testing.assert_close(parameter.detach(), before, rtol=0, atol=0)
        for name, value in kept[parameter].items():
            torch.testing.assert_close(optimizer.state[parameter][name], value, rtol=0, atol=0)


def test_an_update_that_is_not_refused_is_the_same_either_way() -> None:
    ends = []
    for found_inf in (None, torch.zeros(())):
        torch.manual_seed(0)
        model = GPT(shape_of())
        optimizer = with_gradients(model)
        for _ in range(3):
            optimizer.step(found_inf=found_inf)
        ends.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    torch.testing.assert_close(ends[1], ends[0], rtol=1e-6, atol=1e-7)


def test_muon_takes_the_verdict_on_a_device_that_the_host_would_wait_for() -> None:
    assert not build_optimizer(GPT(shape_of()), CONFIG, fused=True).takes_found_inf
    elsewhere = GPT(shape_of()).to("meta")
    assert build_optimizer(elsewhere, CONFIG, fused=True).takes_found_inf
    assert not build_optimizer(elsewhere, CONFIG, fused=False).takes_found_inf


def test_the_learning_rate_of_muon_follows_the_schedule_in_proportion() -> None:
    optimizer = build_optimizer(GPT(shape_of()), CONFIG, fused=True)
    assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([0.05, 1e-2])
    set_learning_rate(optimizer, 5e-3)
    assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([0.025, 5e-3])


def test_momentum_rises_to_its_end() -> None:
    assert [muon_momentum(CONFIG, step) for step in (0, 5, 10, 1000)] == pytest.approx(
        [0.85, 0.875, 0.9, 0.9]
    )


@pytest.mark.parametrize(("rows", "columns", "scale"), [(64, 64, 1.0), (64, 16, 2.0), (16, 64, 1.0)])
def test_tall_matrices_move_further(rows: int, columns: int, scale: float) -> None:
    assert update_scale(rows, columns) == pytest.approx(scale)


def test_the_flops_are_those_of_the_products() -> None:
    counted = 0
    for rows, columns, number in ((64, 64, 4), (64, 256, 2)):
        counted += number * 2 * (2 * rows * rows * columns + rows**3)
    assert muon_flops(n_layer=3, n_embd=64, steps=5) == 3 * 5 * counted


def test_training_with_muon_learns_faster_than_adamw_on_a_small_task() -> None:
    """Copying the token before, from the same start: a hundred steps of each at a sound rate."""
    ends = {}
    for name in ("adamw", "muon"):
        torch.manual_seed(0)
        model = GPT(shape_of(tie_weights=False))
        config = replace(CONFIG, optimizer=name, learning_rate=3e-3, weight_decay=0.0)
        optimizer = build_optimizer(model, config, fused=True)
        generator = torch.Generator().manual_seed(5)
        losses = []
        for _ in range(100):
            tokens = torch.randint(23, (8, 17), generator=generator)
            loss = model(tokens[:, 1:], tokens[:, :-1])
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        ends[name] = np.mean(losses[-10:])
    assert ends["muon"] < ends["adamw"] - 0.1

"""What the ingredients of `arch = "modern"` promise, each by what it does to a small model."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from gptwright.config.ingredients import GPT2, MODERN, Ingredients
from gptwright.config.load import load_config
from gptwright.errors import ConfigError
from gptwright.model.gpt import GPT
from gptwright.model.modern import EPSILON, Rotary, Smear, relu2, rms_norm
from tests.model.models import random_ids, shape_of, vivid_model


def test_arch_and_switches_decide_together() -> None:
    assert load_config([], {}).config.ingredients == GPT2
    assert load_config([], {"arch": "modern"}).config.ingredients == MODERN
    one_less = load_config([], {"arch": "modern", "rope": "False"}).config
    assert set(MODERN.used()) - set(one_less.ingredients.used()) == {"rope"}
    assert (one_less.recipe, load_config([], {}).config.recipe) == ("mixed", "gpt2")
    assert load_config([], {"arch": "modern", "optimizer": "muon"}).config.recipe == "modern"
    assert load_config([], {"relu2": "True"}).config.ingredients == Ingredients(relu2=True)


def test_an_odd_head_cannot_turn() -> None:
    with pytest.raises(ConfigError, match=r"n_embd / n_head = 15 is odd[\s\S]*--rope=False"):
        load_config([], {"arch": "modern", "n_embd": "60", "n_head": "4"})


def test_a_turned_product_depends_on_the_distance_alone() -> None:
    rotary = Rotary(8, 32)
    query, key = torch.randn(2, 1, 1, 1, 8, generator=torch.Generator().manual_seed(0))

    def turned(x: Tensor, at: int) -> Tensor:
        y: Tensor = rotary(x, torch.tensor([at]))
        return y

    products = [float((turned(query, at + 5) * turned(key, at)).sum()) for at in (0, 3, 20)]
    assert products == pytest.approx([products[0]] * 3, abs=1e-5)
    assert abs(float((turned(query, 9) * turned(key, 0)).sum()) - products[0]) > 1e-2
    assert float(turned(query, 13).norm()) == pytest.approx(float(query.norm()), rel=1e-6)
    texts = torch.randn(2, 3, 1, 8)
    apart = rotary(texts, torch.tensor([[0, 1, 2], [7, 8, 9]]))
    torch.testing.assert_close(apart[0], rotary(texts[:1], slice(3))[0])
    torch.testing.assert_close(apart[1], rotary(texts[1:], slice(7, 10))[0])


def test_a_turn_is_the_papers_with_its_gradient() -> None:
    """Each pair (a, b) becomes (a·cos + b·sin, b·cos - a·sin)."""
    rotary = Rotary(6, 16)
    x, g = torch.randn(2, 2, 5, 3, 6, generator=torch.Generator().manual_seed(1))
    one, other = x.clone().requires_grad_(), x.clone().requires_grad_()
    angles = torch.arange(5)[:, None] / 10_000 ** (torch.arange(0, 6, 2) / 6)
    cosine, sine = angles.cos()[:, None], angles.sin()[:, None]
    a, b = other.chunk(2, dim=-1)
    paper = torch.cat((a * cosine + b * sine, b * cosine - a * sine), dim=-1)
    turned = rotary(one, slice(5))
    torch.testing.assert_close(turned, paper)
    torch.testing.assert_close(
        *(torch.autograd.grad(y, of, g)[0] for y, of in ((turned, one), (paper, other)))
    )
    together = rotary(torch.stack((x, -x), dim=2), slice(5))
    torch.testing.assert_close(together.unbind(2), (turned.detach(), -turned.detach()))


def test_rms_norm_has_a_mean_square_of_one() -> None:
    x = 7.0 * torch.randn(3, 5, 64) + 2.0
    torch.testing.assert_close(rms_norm(x).square().mean(dim=-1), torch.ones(3, 5), atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    ("own", "theirs"),
    [
        (rms_norm, lambda x: F.rms_norm(x, (32,), eps=EPSILON)),
        (relu2, lambda x: F.relu(x) ** 2),
    ],
)
def test_norm_and_square_have_torchs_values_and_gradients(
    own: Callable[[Tensor], Tensor], theirs: Callable[[Tensor], Tensor]
) -> None:
    x, g = torch.randn(2, 3, 5, 32, generator=torch.Generator().manual_seed(2)).double()
    one, other = x.clone().requires_grad_(), x.clone().requires_grad_()
    torch.testing.assert_close(own(one), theirs(other))
    (own_gradient,) = torch.autograd.grad(own(one), one, g)
    (their_gradient,) = torch.autograd.grad(theirs(other), other, g)
    torch.testing.assert_close(own_gradient, their_gradient)


def test_the_smear_adds_the_token_before() -> None:
    smear = Smear(2)
    x = torch.tensor([[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]])
    torch.testing.assert_close(smear(x, None), x)  # its weights start at zero
    with torch.no_grad():
        smear.weight.copy_(torch.tensor([0.5, -1.0]))
    torch.testing.assert_close(smear(x, None), torch.tensor([[[1.0, 2.0], [3.5, 2.0], [6.5, 2.0]]]))
    torch.testing.assert_close(smear(x[:, 1:], x[:, :1]), smear(x, None)[:, 1:])


def test_it_starts_as_the_identity_and_guesses_evenly() -> None:
    torch.manual_seed(0)
    model = GPT(shape_of(tie_weights=False, bias=False, ingredients=MODERN))
    tokens = random_ids((4, 16), 23)
    assert model(tokens, tokens).item() == pytest.approx(math.log(23), abs=1e-6)
    embedded = rms_norm(model.transformer["wte"](tokens))
    torch.testing.assert_close(model.hidden(tokens), rms_norm(embedded), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", MODERN.used())
def test_every_switch_changes_what_is_computed(name: str) -> None:
    switched = Ingredients(**{name: True})
    model = vivid_model(shape_of(ingredients=switched))
    plain = GPT(shape_of())
    plain.load_state_dict(model.state_dict(), strict=False)
    ids = random_ids((2, 16), 23)
    if name == "zero_init":
        assert not GPT(shape_of(ingredients=switched)).transformer["h"][0].mlp.c_proj.weight.any()  # type: ignore[index]
    else:
        assert (model.hidden(ids) - plain.hidden(ids)).abs().max() > 0.05


def test_no_token_sees_what_comes_after_it() -> None:
    model = vivid_model(shape_of(tie_weights=False, ingredients=MODERN)).eval()
    ids = random_ids((1, 16), 23)
    other = ids.clone()
    other[:, 9:] = (other[:, 9:] + 1) % 23
    torch.testing.assert_close(model.hidden(ids)[:, :9], model.hidden(other)[:, :9])
    assert (model.hidden(ids)[:, 9] - model.hidden(other)[:, 9]).abs().max() > 0.05


def test_the_block_is_the_formula() -> None:
    """One block by hand: norms, turned and normalized queries and keys, squared ReLU."""
    made_of = Ingredients(rope=True, rms_norm=True, qk_norm=True, relu2=True)
    model = vivid_model(shape_of(n_layer=1, n_head=2, bias=False, ingredients=made_of)).eval()
    ids = random_ids((2, 16), 23)
    weights = dict(model.named_parameters())
    x = rms_norm(weights["transformer.wte.weight"][ids])
    qkv = (rms_norm(x) @ weights["transformer.h.0.attn.c_attn.weight"].T).view(2, 16, 3, 2, 8)
    q, k, v = qkv.unbind(2)
    wavelengths = 10_000.0 ** (torch.arange(4) / 4)
    angle = torch.arange(16)[:, None] / wavelengths
    turn = torch.polar(torch.ones_like(angle), -angle)[:, None]

    def turned(part: torch.Tensor) -> torch.Tensor:
        part = rms_norm(part)
        pairs = torch.complex(part[..., :4], part[..., 4:]) * turn
        return torch.cat((pairs.real, pairs.imag), dim=-1)

    scores = torch.einsum("bthd,bshd->bhts", turned(q), turned(k)) / math.sqrt(8)
    scores = scores.masked_fill(torch.ones(16, 16).triu(1).bool(), -torch.inf)
    mixed = torch.einsum("bhts,bshd->bthd", scores.softmax(-1), v).reshape(2, 16, 16)
    x = x + mixed @ weights["transformer.h.0.attn.c_proj.weight"].T
    inner = F.relu(rms_norm(x) @ weights["transformer.h.0.mlp.c_fc.weight"].T) ** 2
    x = x + inner @ weights["transformer.h.0.mlp.c_proj.weight"].T
    torch.testing.assert_close(model.hidden(ids), rms_norm(x), atol=1e-4, rtol=1e-4)
